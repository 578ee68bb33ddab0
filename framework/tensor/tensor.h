#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/dtype.h"
#include "framework/core/error.h"
#include "framework/core/ref.h"
#include "framework/core/shape.h"
#include "framework/tensor/storage.h"

namespace capstan {

class Operand;
class Tensor;

/// What autograd hangs on a tensor; opaque to everything below it.
class GradSlot : public RefCounted {};

/// The object that Tensor handles share.
struct TensorImpl final : RefCounted {
  Ref<Storage> storage;
  Shape shape;
  Strides strides;          // in elements
  std::int64_t offset = 0;  // in elements, from the start of the storage
  std::int64_t numel = 0;
  DType dtype = DType::float32;
  bool is_view = false;  // made as a view of another tensor
  Ref<GradSlot> grad_slot;
  Ref<RefCounted> view_family;  // one for a recorded result and all recorded views of it
};

struct BackwardOptions {
  bool retain_graph = false;  ///< keep saved values for another backward
  bool create_graph = false;  ///< make the gradients differentiable; implies retain_graph
};

/// A strided view of reference-counted memory on one device. A handle: copies name the same tensor,
/// and `const` concerns the handle, not the elements. A default-made Tensor is undefined.
///
/// Operations on the GPU, and all copies to it, are only enqueued on the current stream; `item`,
/// `to_vector`, printing and `to(Device::cpu())` wait for it and are refused while it captures.
/// Every operation checks shapes, dtypes and devices and throws ShapeError, DTypeError, DeviceError
/// with the operation, the values and the user's line; nothing has changed then.
class Tensor {
 public:
  Tensor() noexcept = default;
  explicit Tensor(Ref<TensorImpl> impl) noexcept : impl_(std::move(impl)) {}
  /// Copies host values, row-major, to a new tensor. @throws ShapeError if their number is not
  /// `shape.numel()`; CaptureError while capturing, since a replay would not copy again.
  template <typename T>
  [[nodiscard]] static Tensor from_vector(const Shape& shape, const std::vector<T>& values,
                                          Device device = Device::cpu(),
                                          Where where = Where::current());

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(impl_); }
  [[nodiscard]] const Shape& shape() const { return checked().shape; }
  [[nodiscard]] const Strides& strides() const { return checked().strides; }
  [[nodiscard]] int rank() const { return checked().shape.rank(); }
  [[nodiscard]] std::int64_t size(int axis) const { return checked().shape[axis]; }
  [[nodiscard]] std::int64_t numel() const { return checked().numel; }
  [[nodiscard]] DType dtype() const { return checked().dtype; }
  [[nodiscard]] Device device() const { return checked().storage->device(); }
  /// True if elements lie densely in row-major order.
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] const Ref<Storage>& storage() const { return checked().storage; }
  [[nodiscard]] std::int64_t offset() const { return checked().offset; }
  [[nodiscard]] const Ref<TensorImpl>& impl() const noexcept { return impl_; }
  /// True for two handles of one tensor.
  [[nodiscard]] bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }

  /// Address of the first element, on this tensor's device. @throws DTypeError if T is not its
  /// dtype.
  template <typename T>
  [[nodiscard]] T* data() const {
    CAPSTAN_CHECK(dtype() == dtype_of<T>, DTypeError, "data: the tensor holds ", dtype(), ", not ",
                  dtype_of<T>);
    return static_cast<T*>(raw_data());
  }
  [[nodiscard]] void* raw_data() const;

  /// Work on `stream` uses this tensor's memory, which was allocated on another stream: when its
  /// last tensor is gone, it is reused only after what `stream` has been given until then. Needed
  /// outside of captures, where nothing else knows.
  void record_stream(const Stream& stream, Where where = Where::current()) const;

  /// The only element. Waits for the device. @throws ShapeError if there is not exactly one.
  template <typename T = double>
  [[nodiscard]] T item(Where where = Where::current()) const;
  /// All elements, row-major, converted to T. Waits for the device.
  template <typename T>
  [[nodiscard]] std::vector<T> to_vector(Where where = Where::current()) const;
  [[nodiscard]] std::string to_string(Where where = Where::current()) const;

  // Everything below is differentiable, and is defined in autograd/tensor_*.cpp.

  // Views: no copies; gradients flow through. `reshape` copies if no view has the wanted shape.
  [[nodiscard]] Tensor reshape(const Shape& shape, Where where = Where::current()) const;
  [[nodiscard]] Tensor flatten(int first = 0, int last = -1, Where where = Where::current()) const;
  [[nodiscard]] Tensor transpose(int axis0, int axis1, Where where = Where::current()) const;
  /// Swaps the last two axes.
  [[nodiscard]] Tensor t(Where where = Where::current()) const;
  [[nodiscard]] Tensor permute(const Axes& axes, Where where = Where::current()) const;
  /// Elements begin, begin + step, ... before end; negative positions count from the end, and both
  /// are clamped as in Python. step >= 1.
  [[nodiscard]] Tensor slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1,
                             Where where = Where::current()) const;
  /// One index of an axis, which disappears. @throws IndexError.
  [[nodiscard]] Tensor select(int axis, std::int64_t index, Where where = Where::current()) const;
  /// Stretches axes of size 1; -1 keeps a size.
  [[nodiscard]] Tensor expand(const Shape& shape, Where where = Where::current()) const;
  [[nodiscard]] Tensor squeeze(int axis, Where where = Where::current()) const;
  [[nodiscard]] Tensor squeeze(Where where = Where::current()) const;
  [[nodiscard]] Tensor unsqueeze(int axis, Where where = Where::current()) const;

  // Copies. `contiguous` and `to` return this very tensor where nothing needs to change.
  [[nodiscard]] Tensor contiguous(Where where = Where::current()) const;
  [[nodiscard]] Tensor clone(Where where = Where::current()) const;
  [[nodiscard]] Tensor to(Device device, Where where = Where::current()) const;
  [[nodiscard]] Tensor to(DType dtype, Where where = Where::current()) const;

  // Reductions over `axes`, all of them if empty. See autograd/reduce.h for the free functions.
  [[nodiscard]] Tensor sum(const Axes& axes = {}, bool keepdim = false,
                           Where where = Where::current()) const;
  [[nodiscard]] Tensor mean(const Axes& axes = {}, bool keepdim = false,
                            Where where = Where::current()) const;
  [[nodiscard]] Tensor max(const Axes& axes = {}, bool keepdim = false,
                           Where where = Where::current()) const;
  /// Index (int64) of the largest element along `axis`; the first of equals.
  [[nodiscard]] Tensor argmax(int axis, bool keepdim = false, Where where = Where::current()) const;
  [[nodiscard]] Tensor matmul(const Tensor& other, Where where = Where::current()) const;

  // In place; they return this tensor. The operand broadcasts to this shape.
  // @throws GradError for a leaf that requires a gradient while gradients are recorded.
  const Tensor& copy_(const Tensor& from, Where where = Where::current()) const;
  const Tensor& fill_(double value, Where where = Where::current()) const;
  const Tensor& zero_(Where where = Where::current()) const;
  const Tensor& add_(const Operand& other, Where where = Where::current()) const;
  const Tensor& sub_(const Operand& other, Where where = Where::current()) const;
  const Tensor& mul_(const Operand& other, Where where = Where::current()) const;
  const Tensor& div_(const Operand& other, Where where = Where::current()) const;

  // Gradients.
  [[nodiscard]] bool requires_grad() const noexcept;
  /// Makes a leaf require (or no longer require) a gradient; returns this tensor.
  /// @throws DTypeError  unless for a floating dtype; GradError for a result of a recorded
  /// operation.
  const Tensor& set_requires_grad(bool value = true, Where where = Where::current()) const;
  [[nodiscard]] bool is_leaf() const noexcept;
  /// The accumulated gradient; undefined if there is none.
  [[nodiscard]] Tensor grad() const;
  /// @throws ShapeError, DTypeError, DeviceError unless it matches this tensor; undefined clears.
  void set_grad(const Tensor& grad, Where where = Where::current()) const;
  /// Accumulates d(this)/d(leaf) into the `grad` of every leaf. `gradient` may be left out for a
  /// tensor of one element. @throws GradError.
  void backward(const Tensor& gradient = Tensor(), BackwardOptions options = {},
                Where where = Where::current()) const;
  /// The same memory without history.
  [[nodiscard]] Tensor detach() const;
  /// Keeps the gradient of a non-leaf in `grad()`.
  void retain_grad(Where where = Where::current()) const;
  /// Calls `hook` with the gradient of this tensor during backward; a defined result replaces it.
  /// @return  a number for `remove_hook`.
  int register_hook(std::function<Tensor(const Tensor&)> hook,
                    Where where = Where::current()) const;
  void remove_hook(int id) const;
  /// Lets this tensor (a parameter, say) name another memory of the same dtype, keeping identity.
  void set_data(const Tensor& data, Where where = Where::current()) const;

 private:
  [[nodiscard]] TensorImpl& checked() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  [[noreturn]] static void throw_undefined();

  Ref<TensorImpl> impl_;
};

/// Prints values (like to_string), shape, dtype and device. Waits for the device.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// An argument that is a tensor or a number, together with the line it was written on. Numbers take
/// the dtype of the tensor they meet, but one with a fraction makes an integer tensor float32.
class Operand {
 public:
  Operand(const Tensor& tensor, Where where = Where::current()) noexcept
      : tensor_(&tensor), where_(where) {}
  Operand(double value, Where where = Where::current()) noexcept : value_(value), where_(where) {}
  Operand(float value, Where where = Where::current()) noexcept : value_(value), where_(where) {}
  Operand(int value, Where where = Where::current()) noexcept
      : value_(value), whole_(true), where_(where) {}
  Operand(std::int64_t value, Where where = Where::current()) noexcept
      : value_(static_cast<double>(value)), whole_(true), where_(where) {}

  [[nodiscard]] bool is_tensor() const noexcept { return tensor_ != nullptr; }
  [[nodiscard]] const Tensor& tensor() const noexcept { return *tensor_; }
  [[nodiscard]] double value() const noexcept { return value_; }
  /// int64 for a number written as an integer, else float32; see framework/core/promote.h.
  [[nodiscard]] DType number_dtype() const noexcept {
    return whole_ ? DType::int64 : DType::float32;
  }
  [[nodiscard]] const Where& where() const noexcept { return where_; }

 private:
  const Tensor* tensor_ = nullptr;
  double value_ = 0.0;
  bool whole_ = false;
  Where where_;
};

/// Shape, dtype and device for messages: "float32[64, 128] on cpu".
[[nodiscard]] std::string describe(const Tensor& tensor);

}  // namespace capstan
