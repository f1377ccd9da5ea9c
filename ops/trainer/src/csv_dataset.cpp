// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "byte_values.h"
#include "csv_reader.h"
#include "durable_file.h"
#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"

namespace farandole::trainer {
namespace {

/// Indices of the columns in use.
struct UsedColumns {
  std::vector<std::size_t> inputs, targets;
  std::optional<std::size_t> label, weight;
};

/// Reads the text of a file into samples.
class CsvTable {
 public:
  CsvTable(std::string_view text, const std::string& name, const CsvOptions& options)
      : options_(options), name_(name), rows_(text, options.separator, name) {}

  Samples read() {
    bool has_row = rows_.next();
    if (!has_row) throw DataError(fmt::format("{} has no rows", name_));
    count_ = rows_.fields().size();
    if (options_.header) {
      header_.assign(rows_.fields().begin(), rows_.fields().end());
      has_row = rows_.next();
      if (!has_row) throw DataError(fmt::format("{} has no rows below the header", name_));
    }
    choose_columns();
    std::vector<float> inputs;
    for (; has_row; has_row = rows_.next()) read_row(inputs);
    samples_.shape = {static_cast<std::int64_t>(columns_.inputs.size())};
    if (!columns_.targets.empty()) samples_.target_shape = {static_cast<std::int64_t>(columns_.targets.size())};
    samples_.inputs = std::move(inputs);
    if (columns_.label && options_.classes.empty()) number_classes();
    return std::move(samples_);
  }

 private:
  std::string describe_column(std::size_t column) const {
    if (header_.empty()) return fmt::format("column {}", column + 1);
    return fmt::format("column {} ('{}')", column + 1, header_[column]);
  }

  /// @throws DataError  names line and column of the current row
  [[noreturn]] void fail(std::size_t column, const std::string& reason) const {
    throw DataError(fmt::format("{}, line {}, {}: {}", name_, rows_.line(), describe_column(column), reason));
  }

  std::size_t find(const CsvColumn& column) const {
    if (const auto* const index = std::get_if<std::int64_t>(&column)) {
      if (*index >= 0 && static_cast<std::size_t>(*index) < count_) return static_cast<std::size_t>(*index);
      throw InvalidArgument(fmt::format("CsvOptions: there is no column {} in {}, which has the columns 0 to {}",
                                        *index, name_, count_ - 1));
    }
    const auto& wanted = std::get<std::string>(column);
    if (!options_.header) {
      throw InvalidArgument(
          fmt::format("CsvOptions: the column '{}' has a name, but the file has no header; give its "
                      "index",
                      wanted));
    }
    const auto found = std::find(header_.begin(), header_.end(), wanted);
    if (found == header_.end()) {
      throw InvalidArgument(fmt::format("CsvOptions: there is no column '{}' in {}, which has '{}'", wanted, name_,
                                        fmt::join(header_, "', '")));
    }
    if (std::find(found + 1, header_.end(), wanted) != header_.end()) {
      throw InvalidArgument(fmt::format("CsvOptions: {} has two columns '{}'; give the index", name_, wanted));
    }
    return static_cast<std::size_t>(found - header_.begin());
  }

  std::size_t find_unused(const CsvColumn& column, std::vector<bool>& used) const {
    const std::size_t index = find(column);
    if (used[index]) throw InvalidArgument(fmt::format("CsvOptions: {} is used twice", describe_column(index)));
    used[index] = true;
    return index;
  }

  void choose_columns() {
    std::vector<bool> used(count_);
    for (const CsvColumn& column : options_.inputs) columns_.inputs.push_back(find_unused(column, used));
    for (const CsvColumn& column : options_.targets) columns_.targets.push_back(find_unused(column, used));
    if (options_.label) columns_.label = find_unused(*options_.label, used);
    if (options_.weight) columns_.weight = find_unused(*options_.weight, used);
    for (std::size_t column = 0; options_.inputs.empty() && column < count_; ++column) {
      if (!used[column]) columns_.inputs.push_back(column);
    }
    if (columns_.inputs.empty()) throw InvalidArgument(fmt::format("CsvOptions: no column of {} is an input", name_));
    if (!options_.label && !options_.classes.empty()) {
      throw InvalidArgument("CsvOptions: classes are given, but no column of labels");
    }
    for (const std::string& name : options_.classes) numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size()));
    samples_.class_names = options_.classes;
    samples_.classes = static_cast<std::int32_t>(options_.classes.size());
  }

  float number(std::size_t column) const {
    std::string_view text = rows_.fields()[column];
    if (text.empty()) fail(column, "the value is missing");
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      fail(column, fmt::format("'{}' is not a number", rows_.fields()[column]));
    }
    if (error == std::errc::result_out_of_range || !(std::abs(value) <= std::numeric_limits<float>::max())) {
      fail(column, fmt::format("'{}' is not a finite number in the range of float", rows_.fields()[column]));
    }
    return static_cast<float>(value);
  }

  std::int32_t label(std::size_t column) {
    const std::string_view text = rows_.fields()[column];
    if (text.empty()) fail(column, "the value is missing");
    const auto known = numbers_.find(text);
    if (known != numbers_.end()) return known->second;
    if (!options_.classes.empty()) {
      fail(column, fmt::format("'{}' is none of the {} classes in CsvOptions::classes", text, options_.classes.size()));
    }
    return numbers_.emplace(text, static_cast<std::int32_t>(numbers_.size())).first->second;
  }

  void read_row(std::vector<float>& inputs) {
    if (rows_.fields().size() != count_) {
      throw DataError(fmt::format("{}, line {}: {} fields, but the first row has {}", name_, rows_.line(),
                                  rows_.fields().size(), count_));
    }
    for (const std::size_t column : columns_.inputs) inputs.push_back(number(column));
    for (const std::size_t column : columns_.targets) samples_.targets.push_back(number(column));
    if (columns_.label) samples_.labels.push_back(label(*columns_.label));
    if (!columns_.weight) return;
    samples_.weights.push_back(number(*columns_.weight));
    if (samples_.weights.back() < 0) fail(*columns_.weight, "a weight must be at least 0");
  }

  /// Returns the class that each entry of `numbers_` denotes if all are whole numbers; empty otherwise.
  std::vector<std::int32_t> numeric_classes() const {
    std::vector<std::int32_t> classes(numbers_.size());
    for (const auto& [text, number] : numbers_) {
      std::int32_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool is_whole = error == std::errc() && end == text.data() + text.size() && value >= 0;
      if (!is_whole || value == std::numeric_limits<std::int32_t>::max()) return {};
      classes[static_cast<std::size_t>(number)] = value;
    }
    return classes;
  }

  /// Replaces the labels, which are numbered by their first appearance, by the classes.
  void number_classes() {
    std::vector<std::int32_t> classes = numeric_classes();
    if (classes.empty()) {
      classes.resize(numbers_.size());
      for (const auto& [text, number] : numbers_) {
        classes[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(samples_.class_names.size());
        samples_.class_names.push_back(text);
      }
    }
    for (std::int32_t& label : samples_.labels) label = classes[static_cast<std::size_t>(label)];
    samples_.classes = 1 + *std::max_element(samples_.labels.begin(), samples_.labels.end());
  }

  const CsvOptions& options_;
  const std::string& name_;
  CsvReader rows_;
  std::size_t count_ = 0;  // of columns
  std::vector<std::string> header_;
  UsedColumns columns_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;  // of the entries of the label's column
  Samples samples_;
};

}  // namespace

std::shared_ptr<const Dataset> csv_dataset(const std::filesystem::path& file, const CsvOptions& options) {
  if (std::string_view("\"\r\n").find(options.separator) != std::string_view::npos) {
    throw InvalidArgument("CsvOptions: the separator must not be a quote or an end of line");
  }
  if (!options.classes.empty()) check_class_names(options.classes, static_cast<std::int32_t>(options.classes.size()));
  const std::vector<std::byte> bytes = read_file(file);
  const std::string name = file.string();
  return memory_dataset(CsvTable({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, options).read());
}

}  // namespace farandole::trainer
