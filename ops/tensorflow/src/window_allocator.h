// SPDX-License-Identifier: Apache-2.0
#ifndef FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H
#define FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H

namespace farandole_tensorflow {

/// TensorFlow takes large CPU tensors from the BlockPool from now on. Only before its first allocation.
void register_window_allocator();

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H
