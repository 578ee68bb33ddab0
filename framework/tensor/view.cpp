#include "framework/tensor/view.h"

#include <algorithm>
#include <bitset>

namespace capstan::view {
namespace {

Tensor make_view(const Tensor& base, const Shape& shape, const Strides& strides,
                 std::int64_t offset) {
  auto impl = make_ref<TensorImpl>();
  impl->storage = base.storage();
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->numel = shape.numel();
  impl->dtype = base.dtype();
  return Tensor(std::move(impl));
}

}  // namespace

Tensor as_strided(const Tensor& base, const Shape& shape, const Strides& strides,
                  std::int64_t offset) {
  CAPSTAN_CHECK(shape.rank() == strides.rank(), ShapeError, "as_strided: shape ", shape,
                " and strides ", strides, " differ in rank");
  for (int axis = 0; axis < shape.rank(); ++axis) {
    CAPSTAN_CHECK(shape[axis] >= 0 && strides[axis] >= 0, ShapeError,
                  "as_strided: sizes and strides must not be negative, got ", shape, " and ",
                  strides);
  }
  const auto held = static_cast<std::int64_t>(base.storage()->bytes() / size_of(base.dtype()));
  const std::int64_t reach = reach_of(shape, strides);
  CAPSTAN_CHECK(offset >= 0 && (reach == 0 || offset + reach <= held), ShapeError,
                "as_strided: shape ", shape, ", strides ", strides, ", offset ", offset,
                " reach outside of a storage of ", held, " elements");
  return make_view(base, shape, strides, offset);
}

Shape resolve_reshape(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int open = -1;
  std::int64_t known = 1;
  bool ok = true;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == -1 && open < 0) {
      open = axis;
    } else {
      ok = ok && shape[axis] >= 0;
      known *= shape[axis];
    }
  }
  if (open >= 0 && ok && known != 0 && x.numel() % known == 0) {
    result[open] = x.numel() / known;
    known = x.numel();
  } else if (open >= 0) {
    ok = false;
  }
  CAPSTAN_CHECK(ok && known == x.numel(), ShapeError, "reshape: cannot make ", shape, " of ",
                x.shape(), " with ", x.numel(), " elements");
  return result;
}

std::optional<Tensor> reshape(const Tensor& x, const Shape& wanted) {
  const Shape shape = resolve_reshape(x, wanted);
  if (x.is_contiguous()) return make_view(x, shape, contiguous_strides(shape), x.offset());
  if (x.numel() == 0) return make_view(x, shape, contiguous_strides(shape), x.offset());

  // Axes of x in runs that are dense among themselves; each run must be cut up by whole new axes.
  Strides strides = Strides::filled(shape.rank(), 0);
  int to = shape.rank() - 1;
  for (int from = x.rank() - 1; from >= 0;) {
    std::int64_t run = x.size(from);
    std::int64_t step = x.strides()[from];
    int first = from - 1;
    while (first >= 0 && (x.size(first) == 1 || run == 1 ||
                          x.strides()[first] == x.strides()[first + 1] * x.size(first + 1))) {
      if (run == 1) step = x.strides()[first];
      run *= x.size(first);
      --first;
    }
    std::int64_t covered = 1;
    while (to >= 0 && (covered < run || shape[to] == 1)) {
      strides[to] = step * covered;
      covered *= shape[to];
      --to;
    }
    if (covered != run) return std::nullopt;
    from = first;
  }
  while (to >= 0) {
    strides[to] = 1;
    --to;
  }
  return make_view(x, shape, strides, x.offset());
}

Tensor permute(const Tensor& x, const Axes& axes) {
  CAPSTAN_CHECK(axes.rank() == x.rank(), ShapeError, "permute: needs ", x.rank(), " axes for ",
                x.shape(), ", got ", axes);
  std::bitset<kMaxRank> seen;
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (int to = 0; to < x.rank(); ++to) {
    const int from = normalize_axis(static_cast<int>(axes[to]), x.rank(), "permute");
    CAPSTAN_CHECK(!seen.test(static_cast<std::size_t>(from)), ValueError,
                  "permute: an axis is named twice, got ", axes);
    seen.set(static_cast<std::size_t>(from));
    shape[to] = x.size(from);
    strides[to] = x.strides()[from];
  }
  return make_view(x, shape, strides, x.offset());
}

Tensor transpose(const Tensor& x, int axis0, int axis1) {
  const int a = normalize_axis(axis0, x.rank(), "transpose");
  const int b = normalize_axis(axis1, x.rank(), "transpose");
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return make_view(x, shape, strides, x.offset());
}

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  const int a = normalize_axis(axis, x.rank(), "slice");
  CAPSTAN_CHECK(step >= 1, ValueError, "slice: step must be at least 1, got ", step);
  const std::int64_t size = x.size(a);
  const auto clamped = [size](std::int64_t position) {
    return std::clamp<std::int64_t>(position < 0 ? position + size : position, 0, size);
  };
  const std::int64_t first = clamped(begin);
  const std::int64_t last = std::max(clamped(end), first);
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[a] = (last - first + step - 1) / step;
  strides[a] *= step;
  const std::int64_t offset = x.offset() + (shape[a] > 0 ? first * x.strides()[a] : 0);
  return make_view(x, shape, strides, offset);
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  const int a = normalize_axis(axis, x.rank(), "select");
  const std::int64_t size = x.size(a);
  const std::int64_t at = index < 0 ? index + size : index;
  CAPSTAN_CHECK(at >= 0 && at < size, IndexError, "select: index ", index,
                " is out of range for axis ", axis, " of ", x.shape());
  Shape shape = x.shape();
  Strides strides = x.strides();
  const std::int64_t offset = x.offset() + at * strides[a];
  shape.erase(a);
  strides.erase(a);
  return make_view(x, shape, strides, offset);
}

Tensor expand(const Tensor& x, const Shape& wanted) {
  CAPSTAN_CHECK(wanted.rank() >= x.rank(), ShapeError, "expand: cannot expand ", x.shape(), " to ",
                wanted, ", which has fewer axes");
  Shape shape = wanted;
  Strides strides = Strides::filled(wanted.rank(), 0);
  for (int back = 1; back <= wanted.rank(); ++back) {
    const bool present = back <= x.rank();
    const std::int64_t have = present ? x.size(-back) : 1;
    if (wanted[-back] == -1 && present) shape[-back] = have;
    CAPSTAN_CHECK(shape[-back] >= 0 && (have == shape[-back] || have == 1), ShapeError,
                  "expand: cannot expand ", x.shape(), " to ", wanted,
                  "; only axes of size 1 stretch");
    if (present && have == shape[-back]) strides[-back] = x.strides()[-back];
  }
  return make_view(x, shape, strides, x.offset());
}

Tensor squeeze(const Tensor& x, int axis) {
  const int a = normalize_axis(axis, x.rank(), "squeeze");
  Shape shape = x.shape();
  Strides strides = x.strides();
  if (shape[a] == 1) {
    shape.erase(a);
    strides.erase(a);
  }
  return make_view(x, shape, strides, x.offset());
}

Tensor squeeze_all(const Tensor& x) {
  Shape shape;
  Strides strides;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) == 1) continue;
    shape.push_back(x.size(axis));
    strides.push_back(x.strides()[axis]);
  }
  return make_view(x, shape, strides, x.offset());
}

Tensor unsqueeze(const Tensor& x, int axis) {
  const int a = normalize_axis(axis, x.rank() + 1, "unsqueeze");
  Shape shape = x.shape();
  Strides strides = x.strides();
  const std::int64_t stride = a < x.rank() ? strides[a] * shape[a] : 1;
  shape.insert(a, 1);
  strides.insert(a, stride);
  return make_view(x, shape, strides, x.offset());
}

Tensor alias(const Tensor& x) { return make_view(x, x.shape(), x.strides(), x.offset()); }

}  // namespace capstan::view
