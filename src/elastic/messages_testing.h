// A message of each kind.
#pragma once

#include <vector>

#include "elastic/messages.h"

namespace deltawire::elastic {

inline std::vector<Message> all_messages() {
  const View view{7, {{0, {"10.0.0.1", 29600}}, {3, {"fd00::1", 4711}}}, 5};
  MemberState state;
  state.job = 0x1122334455667788;
  state.id = 3;
  state.base = view;
  state.tried = {View{8, {{0, {"10.0.0.1", 29600}}, {3, {"fd00::1", 4711}}}, 5}};
  state.steps = 12;
  state.promised = 9;
  state.blamed = {0, 4};
  state.residual = 0.5;
  Digest digest{};
  digest.fill(std::byte{0xAB});
  NextView next{.job = state.job,
                .view = view,
                .base = view,
                .meeting_place = {"10.0.0.1", 5000},
                .steps = 12,
                .gone = {{2, "its process has ended"}},
                .tensors = {{"weights", {2, 3}}, {"bias", {3}}},
                .opens = {{"weights", {2, 3}}},
                .shares = std::vector<int>{0, 3},
                .residual_kept = 1.5,
                .residual_lost = 0.25,
                .new_id = 3};
  return {Refused{ErrorCode::kMismatch, "why"},
          Probe{},
          Here{Place{state.job, 3, true, view}},
          Found{1, 3, {"10.0.0.2", 4000}, "direct(fp32)"},
          Join{{"10.0.0.2", 4000}, "direct(fp32)"},
          Meet{state, {{2, "it left"}}},
          Wait{true},
          Moves{},
          Elsewhere{{"10.0.0.1", 29600}},
          Again{},
          Excluded{7, "it did not answer in time"},
          Alone{"too few"},
          Offer{{{"10.0.0.1", 29600}}},
          AskShare{},
          Shares{8, {0, 3}},
          HasShares{},
          next,
          Take{digest},
          Gives{},
          Lacks{},
          Taken{17},
          Ready{},
          Leaves{state.job, 3, "it left"},
          Heard{},
          BytesHead{1000, digest}};
}

}  // namespace deltawire::elastic
