#include "framework/runtime/emulated_checker.h"

#include <algorithm>

#include "framework/core/error.h"
#include "framework/runtime/order_check.h"

namespace capstan::emulated {

void Checker::reset(bool order, bool reads) {
  order_ = order;
  reads_ = reads;
  ++epoch_;
  chains_ = 1;
  host_ = {.epoch = epoch_, .number = 0, .clock = {0}, .last = -1};
  finished_.clear();
  history_.clear();
  operations_.clear();
  prune_at_ = 1024;
  reports_.clear();
}

void Checker::enter(Chain& chain) {
  if (chain.epoch == epoch_) return;
  chain = {.epoch = epoch_, .number = chains_++, .clock = {}, .last = -1};
}

std::vector<std::string> Checker::add(RecordedOp operation, Chain& chain) {
  std::vector<std::string> found;
  if (!on()) return found;
  enter(chain);
  detail::merge(chain.clock, finished_);
  detail::merge(chain.clock, host_.clock);
  if (chain.clock.size() <= chain.number) chain.clock.resize(chain.number + 1, 0);
  const std::int64_t position = ++chain.clock[chain.number];
  const std::int64_t number = next_++;
  const RecordedOp& op = operations_.emplace(number, std::move(operation)).first->second;
  chain.last = number;

  if (reads_) check_reads(op, found);
  if (order_) {
    for (const AccessHistory::Conflict& conflict : history_.add({.number = number,
                                                   .chain = chain.number,
                                                   .position = position,
                                                   .reads = op.reads,
                                                   .writes = op.writes},
                                                                chain.clock)) {
      found.push_back(detail::describe_conflict(operations_.at(conflict.first), op, conflict));
    }
  }
  for (const Access& write : op.writes) {
    for (const auto& [begin, end] : runs_of(write)) memory_.set(begin, end, Content::written);
  }
  std::erase_if(found, [this](const std::string& text) {
    return std::find(reports_.begin(), reports_.end(), text) != reports_.end();
  });
  reports_.insert(reports_.end(), found.begin(), found.end());
  if (operations_.size() > prune_at_) prune();
  return found;
}

std::vector<std::string> Checker::add_on_host(RecordedOp operation) {
  return add(std::move(operation), host_);
}

void Checker::check_reads(const RecordedOp& operation, std::vector<std::string>& found) const {
  for (const Access& read : operation.reads) {
    for (const auto& [begin, end] : runs_of(read)) {
      const std::optional<Content> content = memory_.first_without_value(begin, end);
      if (!content) continue;
      found.push_back(detail::describe_access(operation, read, "reads") +
                      (*content == Content::freed ? ", which was freed and not written since"
                                                  : ", which was never written"));
      break;
    }
  }
}

void Checker::add_raw(const char* name, std::uint64_t stream, const void* read, const void* written,
                      std::size_t bytes, Chain& chain) {
  if (!on()) return;
  enter(chain);
  const auto last = operations_.find(chain.last);
  const auto covers = [&](const std::vector<Access>& accesses, const void* address) {
    const auto* const begin = static_cast<const std::byte*>(address);
    return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
      const auto* const first = static_cast<const std::byte*>(access.address);
      return first <= begin && begin + bytes <= first + access.bytes;
    });
  };
  RecordedOp operation;
  operation.name = name;
  const auto note = [&](std::vector<Access> RecordedOp::*accesses, const void* address) {
    if (address == nullptr || memory_.is_pageable(address)) return;
    if (last != operations_.end() && covers(last->second.*accesses, address)) {
      operation.name = last->second.name;
    } else {
      (operation.*accesses)
          .push_back({.address = address, .bytes = static_cast<std::int64_t>(bytes)});
    }
  };
  note(&RecordedOp::writes, written);
  note(&RecordedOp::reads, read);
  if (operation.reads.empty() && operation.writes.empty()) return;
  operation.where = detail::call_context.where;
  operation.module = detail::module_path();
  operation.stream = stream;
  (void)add(std::move(operation), chain);
}

const Checker::Clock& Checker::mark(Chain& chain) {
  enter(chain);
  return chain.clock;
}

void Checker::wait(Chain& chain, const Clock& mark) {
  enter(chain);
  detail::merge(chain.clock, mark);
}

void Checker::finished(const Clock& mark) { detail::merge(finished_, mark); }

void Checker::freed(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  memory_.set(begin, begin + bytes, Content::freed);
}

void Checker::prune() {
  history_.forget(finished_);
  const std::vector<std::int64_t> used = history_.numbers();
  std::erase_if(operations_, [&](const auto& entry) {
    return !std::binary_search(used.begin(), used.end(), entry.first);
  });
  prune_at_ = std::max<std::size_t>(1024, 2 * operations_.size());
}

}  // namespace capstan::emulated
