// SPDX-License-Identifier: Apache-2.0
// usage: json_flatten FILE
// Prints every value of a JSON file as a line, such as /0/bytes=64. Exit status 1 if the file is not valid JSON.
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    std::ifstream file(argv[1]);
    const nlohmann::json values = nlohmann::json::parse(file).flatten();
    for (const auto& [pointer, value] : values.items()) std::cout << pointer << '=' << value << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[1] << ": " << error.what() << '\n';
    return 1;
  }
}
