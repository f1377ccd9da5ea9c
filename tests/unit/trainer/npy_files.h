// SPDX-License-Identifier: Apache-2.0
// Writer of NumPy's format for tests.
#pragma once

#include <string>
#include <vector>

namespace farandole::trainer::test {

/// A file with this dictionary and data. @param version  1 or 2
inline std::string npy_file(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string file = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t length =
      (file.size() + length_bytes + dictionary.size() + 1 + 63) / 64 * 64 - file.size() - length_bytes;
  for (std::size_t i = 0; i < length_bytes; ++i) file += static_cast<char>(length >> (8 * i));
  file += dictionary;
  file.append(length - dictionary.size() - 1, ' ');
  return file + '\n' + data;
}

/// An array. @param type  such as "<f4"   @param shape  such as "(3, 4)"
template <class Element>
std::string npy_array(const std::string& type, const std::string& shape, const std::vector<Element>& elements,
                      int version = 1) {
  return npy_file("{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }",
                  {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element)}, version);
}

}  // namespace farandole::trainer::test
