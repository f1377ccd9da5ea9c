// SPDX-License-Identifier: Apache-2.0
#include "csv_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

CsvReader::CsvReader(std::string_view text, char separator, const std::string& name)
    : text_(text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text),
      separator_(separator),
      name_(name) {}

bool CsvReader::next() {
  bool is_blank = false;
  do {
    fields_.clear();
    unescaped_.clear();
    line_ = next_line_;
    if (position_ == text_.size()) return false;
    while (true) {
      skip_blanks();
      const bool quoted = position_ < text_.size() && text_[position_] == '"';
      fields_.push_back(quoted ? read_quoted() : read_plain());
      is_blank = fields_.size() == 1 && !quoted && fields_[0].empty();
      if (position_ == text_.size() || skip_line_end()) break;
      ++position_;  // the separator
    }
    // The texts of unescaped fields move while the row grows.
    for (std::size_t i = 0, next = 0; next < unescaped_.size(); ++i) {
      if (fields_[i].data() == nullptr) fields_[i] = unescaped_[next++];
    }
  } while (is_blank);
  return true;
}

bool CsvReader::at_field_end() const {
  if (position_ == text_.size()) return true;
  const char next = text_[position_];
  return next == separator_ || next == '\n' || (next == '\r' && text_.substr(position_, 2) == "\r\n");
}

bool CsvReader::skip_line_end() {
  if (text_[position_] == '\r') ++position_;
  if (text_[position_] != '\n') return false;
  ++position_;
  ++next_line_;
  return true;
}

void CsvReader::skip_blanks() {
  while (!at_field_end() && (text_[position_] == ' ' || text_[position_] == '\t')) ++position_;
}

std::string_view CsvReader::read_plain() {
  const std::size_t first = position_;
  while (!at_field_end()) ++position_;
  std::string_view field = text_.substr(first, position_ - first);
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
  return field;
}

std::string_view CsvReader::read_quoted() {
  const std::size_t first = ++position_;
  const std::int64_t first_line = next_line_;
  bool has_quotes = false;
  for (;; ++position_) {
    if (position_ == text_.size()) {
      throw DataError(
          fmt::format("{}, line {}, column {}: the quote has no end", name_, first_line, fields_.size() + 1));
    }
    if (text_[position_] == '\n') ++next_line_;
    if (text_[position_] != '"') continue;
    if (text_.substr(position_, 2) != "\"\"") break;
    has_quotes = true;
    ++position_;
  }
  const std::string_view field = text_.substr(first, position_ - first);
  ++position_;
  skip_blanks();
  if (!at_field_end()) {
    throw DataError(
        fmt::format("{}, line {}, column {}: text follows the quote", name_, next_line_, fields_.size() + 1));
  }
  if (!has_quotes) return field;
  std::string& text = unescaped_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    text += field[i];
    if (field[i] == '"') ++i;
  }
  return {};
}

}  // namespace farandole::trainer
