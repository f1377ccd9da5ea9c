"""Names of the table whose parts are on other branches: deleted when they are merged."""

MODULES = {"horovod.tensorflow.data.compute_service"}
NAMES = {
    ("horovod", "run"),
    ("horovod.runner", "run"),
    ("horovod.tensorflow", "LocalGradientAggregationHelper"),
    ("horovod.tensorflow.gradient_aggregation", "LocalGradientAggregationHelper"),
    ("horovod.tensorflow.gradient_aggregation_eager", "LocalGradientAggregationHelperEager"),
    ("horovod._keras", "LocalGradientAggregationHelper"),
    ("horovod._keras", "LocalGradientAggregationHelperEager"),
}
