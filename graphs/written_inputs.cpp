#include "graphs/written_inputs.h"

#include "framework/core/error.h"

namespace capstan {

void refuse_written_inputs(const std::string& callable, const Recording& recording,
                           std::span<const Tensor> inputs,
                           const std::function<std::string(std::size_t)>& label) {
  for (const RecordedOp& operation : recording.operations) {
    for (const Access& write : operation.writes) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (write.owner != inputs[i].storage().get()) continue;
        const CallSiteOverride site(operation.where);
        throw CaptureError(detail::concat(
            callable, ": ", operation.name, " writes ", label(i),
            ", but a graph sees a copy of its inputs, so the caller's tensor would not change; "
            "write to a clone of it, or let the function refer to the tensor itself"));
      }
    }
  }
}

}  // namespace capstan
