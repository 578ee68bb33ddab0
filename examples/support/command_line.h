#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Options of the form `--name value` and `--name` for an example program.
namespace example {

/// Binds options to variables, whose values are the defaults. `parse` fills them in; `--help`
/// prints what there is and exits with 0, a mistake prints one line and exits with 2.
class CommandLine {
 public:
  CommandLine(std::string program, std::string about)
      : program_(std::move(program)), about_(std::move(about)) {}

  /// A whole or floating number in [least, most].
  template <typename Number>
  void number(const char* name, Number& value, std::type_identity_t<Number> least,
              std::type_identity_t<Number> most, const char* help) {
    add(name, "N", help, shown(value), [=, &value](const std::string& text) {
      Number parsed{};
      const char* const end = text.data() + text.size();
      const auto [stop, status] = std::from_chars(text.data(), end, parsed);
      if (status != std::errc() || stop != end || !(parsed >= least && parsed <= most)) {
        return "needs a number from " + shown(least) + " to " + shown(most);
      }
      value = parsed;
      return std::string();
    });
  }

  /// One of a few words.
  void choice(const char* name, std::string& value, std::vector<std::string> words,
              const char* help) {
    std::string list;
    for (const std::string& word : words) list += (list.empty() ? "" : "|") + word;
    add(name, list, help, value, [words, list, &value](const std::string& text) {
      for (const std::string& word : words) {
        if (word != text) continue;
        value = text;
        return std::string();
      }
      return "needs one of " + list;
    });
  }

  void text(const char* name, std::string& value, const char* placeholder, const char* help) {
    add(name, placeholder, help, value, [&value](const std::string& given) {
      value = given;
      return std::string();
    });
  }

  void flag(const char* name, bool& value, const char* help) {
    add(name, "", help, "", [&value](const std::string&) {
      value = true;
      return std::string();
    });
  }

  void parse(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string given = argv[i];
      if (given == "--help" || given == "-h") print_help();
      const Option* option = find(given);
      if (option == nullptr) fail("unknown option " + given);
      std::string value;
      if (!option->placeholder.empty()) {
        if (++i == argc) fail(given + " needs a value");
        value = argv[i];
      }
      if (const std::string wrong = option->assign(value); !wrong.empty()) {
        fail(given + " " + wrong + ", got '" + value + "'");
      }
    }
  }

 private:
  struct Option {
    std::string name;
    std::string placeholder;  // empty: a flag
    std::string help;
    std::string standard;
    std::function<std::string(const std::string&)> assign;  // returns what is wrong, or nothing
  };

  template <typename Value>
  static std::string shown(const Value& value) {
    std::ostringstream out;
    out << value;
    return out.str();
  }

  void add(const char* name, std::string placeholder, const char* help, std::string standard,
           std::function<std::string(const std::string&)> assign) {
    options_.push_back(
        {name, std::move(placeholder), help, std::move(standard), std::move(assign)});
  }

  const Option* find(std::string_view name) const {
    for (const Option& option : options_) {
      if (option.name == name) return &option;
    }
    return nullptr;
  }

  [[noreturn]] void fail(const std::string& message) const {
    std::cerr << program_ << ": " << message << "; see " << program_ << " --help\n";
    std::exit(2);
  }

  [[noreturn]] void print_help() const {
    std::cout << about_ << "\n\nUsage: examples/run " << program_ << " [option...]\n\n";
    for (const Option& option : options_) {
      std::string left = "  " + option.name;
      if (!option.placeholder.empty()) left += " " + option.placeholder;
      left.resize(std::max<std::size_t>(left.size() + 2, 34), ' ');
      std::cout << left << option.help;
      if (!option.standard.empty()) std::cout << " (" << option.standard << ")";
      std::cout << "\n";
    }
    std::exit(0);
  }

  std::string program_;
  std::string about_;
  std::vector<Option> options_;
};

}  // namespace example
