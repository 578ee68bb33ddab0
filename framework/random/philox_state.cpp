#include "framework/random/philox_state.h"

namespace capstan::cpu {

void set_philox_state(const SetPhiloxArgs& args) {
  args.words[0] = args.seed;
  args.words[1] = args.offset;
}

void shift_philox_state(const ShiftPhiloxArgs& args) {
  args.words[0] = args.from[0];
  args.words[1] = args.from[1] + args.offset;
}

}  // namespace capstan::cpu
