// SPDX-License-Identifier: Apache-2.0
// The manual page of a program, in roff.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>

#include "farandole/core/version.h"
#include "program.h"

namespace farandole::tools {
namespace {

/// Returns roff's name of the UTF-8 character at `at`, and moves `at` past the character.
std::string named_character(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  std::uint32_t code = lead & (0x3fU >> static_cast<unsigned>(more));
  for (int i = 0; i < more && at < text.size(); ++i)
    code = code << 6U | (static_cast<unsigned char>(text[at++]) & 0x3fU);
  return fmt::format("\\[u{:04X}]", code);
}

/// Escapes text for roff, so that no line becomes a request, and hyphens and quotes appear as the characters that users
/// type.
std::string escaped(std::string_view text) {
  std::string roff;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
      roff += named_character(text, at);
      continue;
    }
    ++at;
    switch (c) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      case '`':
        roff += "\\(ga";
        break;
      case '^':
        roff += "\\(ha";
        break;
      case '~':
        roff += "\\(ti";
        break;
      case '.':
        roff += roff.empty() ? "\\&." : ".";
        break;
      default:
        roff += c;
    }
  }
  return roff;
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", escaped(text));
}
std::string italic(std::string_view text) {
  return fmt::format("\\fI{}\\fR", escaped(text));
}

std::string section(std::string_view title) {
  return fmt::format(".SH {}\n", title);
}

/// The name of a value in italics, or its literal words in bold.
std::string value_text(const Program& program, std::string_view value) {
  const bool is_literal = !value.empty() && value[0] >= 'a' && value[0] <= 'z';
  if (!is_literal) return italic(value);
  std::vector<std::string> words = words_of(program, value);
  for (std::string& word : words) word = bold(word);
  return fmt::format("{}", fmt::join(words, "|"));
}

std::string option_entry(const Program& program, const OptionFacts& option) {
  std::string text = ".TP\n";
  if (!option.short_name.empty()) text += fmt::format("{}, ", bold(option.short_name));
  text += bold(option.long_name);
  if (!option.value.empty()) {
    text += fmt::format(fmt::runtime(option.value_is_optional ? "[={}]" : " {}"), value_text(program, option.value));
  }
  text += fmt::format("\n{}", escaped(option.meaning));
  if (!option.default_text.empty()) text += fmt::format(" (default: {})", bold(option.default_text));
  text += '\n';
  return text;
}

std::string group_entries(const Program& program, const OptionGroup& group) {
  std::string text;
  for (const auto& option : group.options.options()) text += option_entry(program, facts_of(*option));
  return text;
}

std::string synopsis(const Program& program) {
  std::string text = section("SYNOPSIS") + ".nf\n";
  for (const std::string& usage : usage_of(program, nullptr)) {
    const auto name_end = usage.find(program.name) + program.name.size();
    text += bold(usage.substr(0, name_end)) + escaped(usage.substr(name_end)) + "\n";
  }
  return text + ".fi\n";
}

std::string description(const Program& program) {
  std::string text = section("DESCRIPTION");
  for (std::size_t i = 0; i < program.description.size(); ++i) {
    text += (i == 0 ? "" : ".PP\n") + escaped(program.description[i]) + "\n";
  }
  return text;
}

std::string options(const Program& program) {
  std::string text = section("OPTIONS");
  for (const OptionGroup& group : program.options) {
    if (program.options.size() > 1) text += fmt::format(".SS {}\n", escaped(group.title));
    text += group_entries(program, group);
  }
  if (program.commands.empty()) return text;
  text += section("COMMANDS");
  for (const Command& command : program.commands) {
    text += fmt::format(".SS {}\n", escaped(command.name + (command.operand.empty() ? "" : " " + command.operand)));
    text += escaped(command.purpose) + "\n";
    for (const OptionGroup& group : command.options) text += group_entries(program, group);
  }
  return text;
}

std::string values(const Program& program) {
  if (program.values.empty()) return "";
  std::string text = section("VALUES");
  for (const ValueWords& value : program.values) {
    text += fmt::format(".TP\n{}\n{}\n", italic(value.name), escaped(fmt::format("{}", fmt::join(value.words, ", "))));
  }
  return text;
}

std::string examples(const Program& program) {
  if (program.examples.empty()) return "";
  std::string text = section("EXAMPLES");
  for (const Example& example : program.examples) {
    // A section already begins with a new paragraph.
    if (&example != &program.examples.front()) text += ".PP\n";
    text += fmt::format("{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", escaped(example.meaning), escaped(example.command));
  }
  return text;
}

}  // namespace

std::string manual_page(const Program& program) {
  std::string title = program.name;
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string page =
      fmt::format(".\\\" Made by {} --{} from the table of its options.\n", program.name, kManualPageSwitch);
  page += fmt::format(".TH {} 1 \"\" \"Farandole {}\" \"User Commands\"\n", escaped(title), version());
  // No hyphenation: a reader who copies a name would copy the hyphen.
  page += ".nh\n.ad l\n";
  page += section("NAME") + escaped(program.name) + " \\- " + escaped(program.purpose) + "\n";
  page += synopsis(program) + description(program) + options(program) + values(program);
  page += section("EXIT STATUS");
  page += fmt::format(".TP\n0\ndone\n.TP\n1\n{}\n.TP\n2\n{}\n", escaped(program.when_1), escaped(program.when_2));
  if (program.ends_on_signals) page += ".TP\n130, 143, 75\nended by SIGINT (Ctrl-C), SIGTERM, SIGUSR1\n";
  if (program.is_part_of_job) {
    page += section("ENVIRONMENT") + "Settings of the library are variables whose names begin with\n.BR FARANDOLE_ .\n";
    page += fmt::format("{} lists them.\n", bold("farandole-info --config"));
  }
  page += examples(program) + section("SEE ALSO");
  for (std::size_t i = 0; i < program.see_also.size(); ++i) {
    page += fmt::format(".BR {} (1){}\n", escaped(program.see_also[i]), i + 1 < program.see_also.size() ? "," : "");
  }
  return page;
}

}  // namespace farandole::tools
