"""Names of the table whose parts are not there yet: deleted when they are."""

MODULES = set()
NAMES = {
    ("horovod.tensorflow", "LocalGradientAggregationHelper"),
    ("horovod.tensorflow.gradient_aggregation", "LocalGradientAggregationHelper"),
    ("horovod.tensorflow.gradient_aggregation_eager", "LocalGradientAggregationHelperEager"),
    ("horovod._keras", "LocalGradientAggregationHelper"),
    ("horovod._keras", "LocalGradientAggregationHelperEager"),
}
