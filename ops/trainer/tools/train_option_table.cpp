// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/trainer/models.h"
#include "train_option_table.h"

namespace farandole::trainer {
namespace {

namespace po = boost::program_options;
using std::int64_t;

/// Option with a default that --help shows as `shown`, instead of with all digits of a double.
po::typed_value<double>* number(double* into, double fallback, const char* shown) {
  return po::value(into)->default_value(fallback, shown)->value_name("X");
}
po::typed_value<int64_t>* count(int64_t* into, int64_t fallback) {
  return po::value(into)->default_value(fallback)->value_name("N");
}
po::typed_value<std::string>* word(std::string* into, const char* fallback, const char* choices) {
  return po::value(into)->default_value(fallback)->value_name(choices);
}

void add_model_options(po::options_description_easy_init add, RawOptions& raw, TrainCommand& command) {
  ModelOptions& sizes = command.model_options;
  add  //
      ("model", word(&command.model, "cnn", fmt::format("{}", fmt::join(model_names(), "|")).c_str()),
       "model; gpt predicts the next symbol of a text, the others classify images")  //
      ("precision", word(&raw.precision, "f32", "f32|f64|bf16|f16"),
       "type of parameters and arithmetic; bf16 and f16, on devices: of matrix products and convolutions, while "
       "everything else stays in f32")  //
      ("loss-scale", word(&raw.loss_scale, "auto", "auto|dynamic|none|N"),
       "bf16 and f16: factor on the loss, which keeps small gradients; dynamic: begins with 65536, halved when a "
       "gradient overflows; auto: dynamic for f16, none for bf16")  //
      ("sync-batch-norm", po::bool_switch(&command.model_options.synchronized_batch_normalization),
       "batch normalisation over all replicas instead of each one's part")            //
      ("blocks", count(&sizes.blocks, 4), "gpt: number of blocks")                    //
      ("units", count(&sizes.units, 128), "gpt: units of each position")              //
      ("heads", count(&sizes.heads, 4), "gpt: heads of attention")                    //
      ("dropout", number(&sizes.dropout, 0, "0"), "gpt: rate of dropout, in [0, 1)")  //
      ("summary", po::bool_switch(&command.summary), "print a table of the model's layers first");
}

void add_data_options(po::options_description_easy_init add, RawOptions& raw, TrainCommand& command) {
  DataCommand& data = command.data;
  AugmentationOptions& augmentation = data.augmentation;
  add  //
      ("data", word(&data.kind, "fashion-mnist", fmt::format("{}", fmt::join(kDataKinds, "|")).c_str()),
       "kind of the data; images: train/ and test/, each with a folder of PNG or JPEG files per class")  //
      ("data-dir", po::value(&raw.data_directory)->value_name("DIR"),
       fmt::format("directory of the data; for text the file (default for Fashion-MNIST {})", kFashionMnistDirectory)
           .c_str())  //
      ("synthetic", po::bool_switch(&data.synthetic),
       "train on data of that kind's shape that are made from the seed, to measure speed")             //
      ("samples", count(&raw.samples, 2048), "synthetic: number of training samples")                  //
      ("image-size", count(&data.image_size, 64), "images: height and width, to which files are cut")  //
      ("text-length", count(&data.text_length, 64), "text: symbols in a sample")                       //
      ("augment-crop", count(&augmentation.crop_padding, 0),
       "images: pixels of zeros around an image, of which a random part is cut out; 0: none")                   //
      ("augment-flip", number(&augmentation.flip, 0, "0"), "images: probability of a flip from left to right")  //
      ("augment-cutout", count(&augmentation.cutout, 0), "images: side of a random square of zeros; 0: none")   //
      ("mixup", number(&augmentation.mixup, 0, "0"),
       "mix each sample with another, with a share of the distribution Beta(X, X); 0: no")  //
      ("loader-threads", count(&raw.loader_threads, 0),
       "threads per replica that read samples ahead; 0: between training steps")  //
      ("batches-ahead", count(&command.training.data.batches_ahead, 2),
       "training steps for which these threads read ahead")  //
      ("drop-last", po::bool_switch(&command.training.data.drop_last),
       "leave out an epoch's last global batch if it is incomplete");
}

void add_training_options(po::options_description_easy_init add, RawOptions& raw, TrainerOptions& training) {
  add                                                                                                               //
      ("epochs", count(&raw.epochs, 5), "passes over the training data")                                            //
      ("max-steps", count(&raw.max_steps, 0), "stop after so many training steps in all; 0: after the last epoch")  //
      ("global-batch", count(&raw.batch, 128), "samples per training step, all replicas together")                  //
      ("accumulate", count(&raw.accumulate, 1), "micro-batches that each replica computes its part in")             //
      ("optimizer", word(&raw.optimizer, "sgd", "sgd|adam|adamw"), "update rule")                                   //
      ("momentum", number(&raw.momentum, 0.9, "0.9"), "momentum of sgd, in [0, 1)")                                 //
      ("nesterov", po::bool_switch(&training.optimizer.nesterov), "Nesterov's form of momentum")                    //
      ("weight-decay", number(&raw.decay, 0, "0"), "weight decay; not of biases and normalisation")                 //
      ("ema-decay", number(&raw.ema_decay, 0, "0"),
       "decay of the parameters' moving average, in [0, 1), such as 0.999; 0: no average")  //
      ("evaluate-with-ema", po::bool_switch(&training.evaluate_with_ema),
       "evaluate with the average instead of the parameters")                                   //
      ("clip-norm", number(&raw.clip, 0, "0"), "limit of the gradients' global norm; 0: none")  //
      ("master-precision", word(&raw.master, "model", "model|f64"),
       "type in which parameters are updated; f64 keeps updates below the last digit of f32")  //
      ("check-every", count(&training.check_every, 1),
       "training steps between checks of the loss, reports of progress and reactions to signals")  //
      ("compare-every", count(&training.compare_every, 1),
       "epochs between comparisons of the replicas' parameters; 0: at the end only")  //
      ("group", po::value(&raw.groups)->value_name("GROUP"),
       "options of parameters by name, such as '0.*:rate=0.1,decay=0' or '0.*:frozen'; may be repeated")      //
      ("top-k", count(&raw.top_k, 0), "also report how often the class is among the N likeliest; 0: do not")  //
      ("seed", count(&raw.seed, 1), "of initial values, shuffling and dropout");
}

void add_schedule_options(po::options_description_easy_init add, RawOptions& raw, LearningRateOptions& rate) {
  add                                                                                             //
      ("learning-rate", number(&raw.rate, 0.05, "0.05"), "learning rate")                         //
      ("warmup-steps", count(&raw.warmup, 0), "training steps in which the rate rises linearly")  //
      ("scale-learning-rate", po::bool_switch(&rate.scale_by_replicas),
       "multiply the learning rate by the number of replicas")  //
      ("lr-schedule", word(&raw.schedule, "constant", "NAME"),
       fmt::format("course of the learning rate: {}", fmt::join(kSchedules, ", ")).c_str())                          //
      ("lr-minimum", number(&raw.minimum, 0, "0"), "cosine, polynomial, plateau: lowest rate")                       //
      ("lr-step-epochs", count(&raw.step_epochs, 10), "step: epochs between drops")                                  //
      ("lr-step-factor", number(&raw.step_factor, 0.1, "0.1"), "step: factor of each drop, in (0, 1]")               //
      ("lr-power", number(&raw.power, 1, "1"), "polynomial: power of the remaining fraction of the training steps")  //
      ("lr-pct-start", number(&raw.pct_start, 0.3, "0.3"),
       "one-cycle: fraction of the training steps in which the rate rises, in [0, 1)")                            //
      ("lr-div-factor", number(&raw.div_factor, 25, "25"), "one-cycle: the first rate is the learning rate / X")  //
      ("lr-final-div-factor", number(&raw.final_div_factor, 1e4, "1e4"),
       "one-cycle: the last rate is the first rate / X")  //
      ("lr-plateau-factor", number(&raw.plateau_factor, 0.1, "0.1"),
       "plateau: factor of each drop, in (0, 1)")  //
      ("lr-plateau-patience", count(&raw.plateau_patience, 10),
       "plateau: losses without progress that are tolerated; test losses, or training losses without evaluations")  //
      ("lr-plateau-threshold", number(&raw.plateau_threshold, 1e-4, "1e-4"),
       "plateau: progress is a loss below the best one * (1 - X), in [0, 1)");
}

void add_job_options(po::options_description_easy_init add, RawOptions& raw, TrainCommand& command) {
  add  //
      ("replicas", count(&raw.replicas, 1),
       "replicas per process, as threads; farandole-run -np multiplies them. With --device cuda or auto one for each "
       "GPU, "
       "unless given: the processes of a host divide its GPUs")                                                   //
      ("expect-ranks", count(&raw.ranks, 0), "refuse to start unless there are so many replicas in all; 0: any")  //
      ("device", word(&raw.device, "cpu", "cpu|cuda|auto"),
       "where replicas compute; cuda: each on its rank's GPU; auto: there, if every rank has one and the model can, "
       "else on the CPU")  //
      ("graph", po::bool_switch(&command.training.graph),
       "cuda: capture the training step into a CUDA graph, and launch that; less work for the host, and the same "
       "bits, except by attention of cuDNN without --deterministic")                                //
      ("threads", count(&raw.threads, 0), "kernel threads per replica; 0: cores / local replicas")  //
      ("deterministic", po::bool_switch(&command.training.deterministic),
       "same bits on 1, 2, 4, 8 replicas of one type of machine")  //
      ("micro-batches", count(&raw.micro_batches, 8),
       "deterministic: parts of a global batch, a power of two that the replicas divide")  //
      ("no-averaging", po::bool_switch(&raw.alone),
       "each replica trains a model of its own: only to measure what communication costs");
}

void add_output_options(po::options_description_easy_init add, RawOptions& raw, TrainCommand& command) {
  MonitorOptions& monitor = command.training.monitor;
  add                                                                                                           //
      ("checkpoint-dir", po::value(&raw.checkpoint_directory)->value_name("DIR"), "where to keep checkpoints")  //
      ("checkpoint-every", count(&raw.checkpoint_every, 1),
       "epochs between checkpoints, 0: none of epochs; one more at the end")  //
      ("checkpoint-every-steps", count(&raw.checkpoint_every_steps, 0),
       "training steps between further checkpoints; 0: none")  //
      ("checkpoint-every-minutes", number(&raw.checkpoint_every_minutes, 0, "0"),
       "minutes after which there is a new checkpoint at the latest; 0: any time")   //
      ("keep-checkpoints", count(&raw.keep, 3), "newest checkpoints that are kept")  //
      ("keep-best", po::bool_switch(&command.training.checkpoints.keep_best),
       "also keep the checkpoint of the best epoch; the link DIR/best names it")  //
      ("resume", po::bool_switch(&command.training.checkpoints.resume),
       "go on from the newest whole checkpoint, with any number of replicas")  //
      ("resume-if-any", po::bool_switch(&command.training.checkpoints.resume_if_any),
       "the same, but begin a new training if there is no checkpoint: one command for jobs that are put into the queue "
       "again")                                                                                            //
      ("evaluate-every", count(&raw.evaluate_every, 1), "epochs between evaluations; 0: only at the end")  //
      ("monitor", po::value(&monitor.value)->default_value("loss")->value_name("NAME"),
       "result that tells which epoch is the best: loss, or accuracy; of the test set")  //
      ("patience", count(&monitor.patience, 0),
       "end the training after so many epochs in a row that are not better than the best one; 0: never")         //
      ("min-delta", number(&monitor.min_delta, 0, "0"), "a result is better if it is better by more than this")  //
      ("json", po::value(&raw.json_file)->value_name("FILE"), "write a JSON line per epoch and one at the end")  //
      ("csv", po::value(&raw.csv_file)->value_name("FILE"), "write a row per epoch, comma-separated")            //
      ("profile", po::bool_switch(&command.training.profile),
       "CPU: print at the end how long each layer took per training step, its GFLOP/s, and the share of the speed of a "
       "large matrix product; also in the last line of --json")  //
      ("log-steps", po::bool_switch(&command.log_steps),
       "also a JSON line per training step, to FILE or standard output")  //
      ("quiet", po::bool_switch(&command.quiet), "print nothing but errors");
}

}  // namespace

void add_options(tools::OptionTable& table, RawOptions& raw, TrainCommand& command) {
  const auto add_group = [&table](const char* title) { return table.emplace_back(title).options.add_options(); };
  add_model_options(add_group("Model"), raw, command);
  add_data_options(add_group("Data"), raw, command);
  add_training_options(add_group("Training"), raw, command.training);
  add_schedule_options(add_group("Learning rate"), raw, command.training.learning_rate);
  add_job_options(add_group("Replicas"), raw, command);
  add_output_options(add_group("Checkpoints and output"), raw, command);
}

}  // namespace farandole::trainer
