#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace capstan {

/// Base of objects that `Ref` counts. The count lives in the object, so a Ref is one pointer.
class RefCounted {
 public:
  RefCounted() noexcept = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  [[nodiscard]] std::int64_t use_count() const noexcept {
    return count_.load(std::memory_order_acquire);
  }
  void add_ref() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

 private:
  /// What the last `release` does. Objects that own long chains of each other override it, to free
  /// them in a loop.
  virtual void destroy() const noexcept { delete this; }

  mutable std::atomic<std::int64_t> count_{0};
};

/// Shared ownership of a RefCounted object.
template <typename T>
class Ref {
 public:
  constexpr Ref() noexcept = default;
  constexpr Ref(std::nullptr_t) noexcept {}
  explicit Ref(T* object) noexcept : object_(object) { acquire(); }
  Ref(const Ref& other) noexcept : object_(other.object_) { acquire(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <typename U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U> other)
  noexcept : object_(other.detach()) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.object_ == b.object_; }

  /// Gives the reference up without releasing it.
  [[nodiscard]] T* detach() noexcept { return std::exchange(object_, nullptr); }

 private:
  void acquire() const noexcept {
    if (object_ != nullptr) object_->add_ref();
  }

  T* object_ = nullptr;
};

template <typename T, typename... Arguments>
[[nodiscard]] Ref<T> make_ref(Arguments&&... arguments) {
  return Ref<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace capstan
