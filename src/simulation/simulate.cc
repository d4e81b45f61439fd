#include "simulation/simulate.h"

#include <cstdio>

#include "simulation/job.h"
#include "simulation/meeting.h"
#include "simulation/reference.h"

namespace deltawire::simulation {

Outcome simulate(std::uint64_t seed, int world, bool prints) {
  const Plan plan = draw_plan(seed, world);
  Outcome outcome;
  outcome.plan = plan.text();
  if (prints) std::printf("%s\n", outcome.plan.c_str());
  if (!plan.spec.empty() && Reference::of(plan).imbalance() > 1e-6) {
    outcome.broken =
        "the undisturbed run of " + plan.spec + " loses " + std::to_string(Reference::of(plan).imbalance());
    return outcome;
  }
  Trace trace(prints);
  Job job(plan, trace);
  outcome.broken = job.run();
  outcome.hash = trace.hash();
  outcome.events = job.events();
  outcome.faults = job.happened();
  for (const RankLog& log : job.logs()) {
    outcome.steps += log.next_step;
    for (const Ending& ending : log.endings) outcome.errors += ending.error ? 1U : 0U;
  }
  return outcome;
}

Outcome simulate_meeting(std::uint64_t seed, int world, bool prints) {
  const MeetingPlan plan = draw_meeting(seed, world);
  Outcome outcome;
  outcome.plan = plan.text();
  if (prints) std::printf("%s\n", outcome.plan.c_str());
  Trace trace(prints);
  Meeting meeting(plan, trace);
  outcome.broken = meeting.run();
  outcome.hash = trace.hash();
  outcome.events = meeting.events();
  outcome.faults = meeting.happened();
  outcome.errors = meeting.errors();
  outcome.steps = meeting.met();
  return outcome;
}

}  // namespace deltawire::simulation
