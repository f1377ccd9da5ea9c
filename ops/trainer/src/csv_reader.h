// SPDX-License-Identifier: Apache-2.0
// Reader of rows of CSV (RFC 4180) and similar tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::trainer {

/// Splits a text into rows of fields, and counts lines. The caller keeps `text` and `name` alive.
class CsvReader {
 public:
  /// @param name  of the file, for messages
  CsvReader(std::string_view text, char separator, const std::string& name);

  /// Reads the next row that is not empty. Returns false at the end of the text.
  /// @throws DataError  a quote has no end, or text follows it
  bool next();
  /// The row's fields, valid until `next`.
  const std::vector<std::string_view>& fields() const { return fields_; }
  /// 1-based line at which the row begins.
  std::int64_t line() const { return line_; }

 private:
  std::string_view read_plain();
  std::string_view read_quoted();
  /// Moves behind the end of a line. Returns false if the next character begins none.
  bool skip_line_end();
  void skip_blanks();
  bool at_field_end() const;

  const std::string_view text_;
  const char separator_;
  const std::string& name_;
  std::size_t position_ = 0;
  std::int64_t next_line_ = 1, line_ = 1;
  std::vector<std::string_view> fields_;
  std::vector<std::string> unescaped_;  // quoted fields that contain quotes
};

}  // namespace farandole::trainer
