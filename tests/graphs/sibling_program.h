#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace capstan::testing {

/// Runs a program that lies beside this one, and checks that it succeeds in silence.
inline void check_silent(const std::string& name, const std::string& arguments) {
  CAPTURE(name + ' ' + arguments);
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  REQUIRE_MESSAGE(std::filesystem::exists(program), "build the target tests/", name);
  std::FILE* const pipe = popen((program.string() + ' ' + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  CHECK(output == "");
}

}  // namespace capstan::testing
