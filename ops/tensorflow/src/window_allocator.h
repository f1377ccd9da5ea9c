// SPDX-License-Identifier: Apache-2.0
#ifndef FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H
#define FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H

namespace farandole_tensorflow {

/// Makes TensorFlow allocate large CPU tensors from the BlockPool from now on. Call it before TensorFlow's first
/// allocation.
void register_window_allocator();

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_WINDOW_ALLOCATOR_H
