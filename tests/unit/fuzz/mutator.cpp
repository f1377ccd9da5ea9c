// SPDX-License-Identifier: Apache-2.0
#include "mutator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "farandole/internal/json_depth.h"

namespace farandole::fuzz {
namespace {

using Json = nlohmann::ordered_json;

/// Values at which lengths, numbers of ranks and offsets tend to go wrong.
constexpr std::array<std::uint64_t, 16> kNumbers{0,
                                                 1,
                                                 2,
                                                 7,
                                                 0x7f,
                                                 0xff,
                                                 0x7fff,
                                                 0xffff,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0xffffffff,
                                                 0x4000000000000000,
                                                 0x7fffffffffffffff,
                                                 0x8000000000000000,
                                                 0xfffffffffffffff0,
                                                 0xffffffffffffffff};

/// `value` over the bytes from `at` on, as far as there are any.
void overwrite(std::string& input, std::size_t at, std::uint64_t value, std::size_t bytes, bool big_endian) {
  for (std::size_t i = 0; i < bytes && at + i < input.size(); ++i) {
    const std::size_t shift = 8 * (big_endian ? bytes - 1 - i : i);
    input[at + i] = static_cast<char>(value >> shift);
  }
}

/// All values of a document, itself first.
void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& each : value) collect(each, all);
}

std::string nested(std::size_t levels, bool objects) {
  std::string text;
  for (std::size_t i = 0; i < levels; ++i) text += objects ? "{\"a\":" : "[";
  text += "1";
  text.append(levels, objects ? '}' : ']');
  return text;
}

}  // namespace

std::string Mutator::bytes(const Corpus& corpus) {
  std::string input = any_of(corpus);
  for (std::size_t changes = below(5); changes > 0; --changes) change_bytes(input, corpus);
  return input;
}

void Mutator::change_bytes(std::string& input, const Corpus& corpus) {
  const std::size_t at = below(input.size() + 1);
  switch (below(8)) {
    case 0:
      input.resize(at);
      break;
    case 1:
      input.insert(at, 1 + below(64), static_cast<char>(below(256)));
      break;
    case 2:
      input.erase(at, 1 + below(16));
      break;
    case 3:
      input = input.substr(0, at) + any_of(corpus).substr(0, below(256));
      break;
    case 4:
      input += any_of(corpus);
      break;
    case 5:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      break;
    default:
      // Fields lie at multiples of their size.
      const std::size_t width = std::size_t{1} << below(4);
      const std::uint64_t value = one_in(4) ? random_() : kNumbers[below(kNumbers.size())] + below(3) - 1;
      overwrite(input, one_in(4) ? at : at / width * width, value, width, one_in(2));
  }
}

std::string Mutator::json(const Corpus& corpus) {
  std::string text = any_of(corpus);
  for (std::size_t changes = below(4); changes > 0; --changes) {
    one_in(4) ? change_bytes(text, corpus) : change_json(text);
  }
  return text;
}

void Mutator::change_json(std::string& text) {
  constexpr std::array kLiterals{"1e999",
                                 "-1e999",
                                 "-0",
                                 "-1",
                                 "0.5",
                                 "1e18",
                                 "99999999999999999999999",
                                 "18446744073709551615",
                                 "9223372036854775808",
                                 "null",
                                 "true",
                                 "\"\"",
                                 "[]",
                                 "{}",
                                 "\"\\u0000\\ud83d\\ude00\""};
  // This, too, calls itself once per level.
  if (json_depth(text) > 100) return;
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return;
  std::vector<Json*> all;
  collect(document, all);
  Json& chosen = *all[below(all.size())];
  // Text that the JSON library cannot produce replaces this mark in the output.
  const std::string mark = "farandole-fuzz";
  std::string instead;
  switch (below(7)) {
    case 0:
      instead = kLiterals[below(kLiterals.size())];
      break;
    case 1:
      instead = nested(std::size_t{1} << below(one_in(50) ? 18 : 8), one_in(2));
      break;
    case 2:
      instead = "\"" + std::string(std::size_t{1} << below(one_in(50) ? 20 : 10), 'x') + "\"";
      break;
    case 3: {
      Json other = *all[below(all.size())];
      chosen = std::move(other);
      break;
    }
    case 4:
      if (chosen.is_structured() && !chosen.empty()) {
        auto member = chosen.begin();
        std::advance(member, below(chosen.size()));
        chosen.erase(member);
      }
      break;
    case 5:
      if (chosen.is_object()) chosen[std::string(std::size_t{1} << below(one_in(50) ? 20 : 8), 'k')] = 1;
      if (chosen.is_array() && !chosen.empty()) chosen.push_back(Json(chosen.front()));
      break;
    default:
      if (chosen.is_number()) chosen = random_();
      if (chosen.is_string()) chosen = chosen.get<std::string>() + static_cast<char>('a' + below(26));
  }
  if (!instead.empty()) chosen = mark;
  text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!instead.empty()) text.replace(text.find('"' + mark + '"'), mark.size() + 2, instead);
}

}  // namespace farandole::fuzz
