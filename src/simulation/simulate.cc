#include "simulation/simulate.h"

#include <cstdio>

#include "simulation/elastic_run.h"
#include "simulation/job.h"
#include "simulation/ledger.h"
#include "simulation/meeting.h"
#include "simulation/served_run.h"

namespace deltawire::simulation {
namespace {

Outcome begun(const std::string& plan, bool prints) {
  if (prints) std::printf("%s\n", plan.c_str());
  Outcome outcome;
  outcome.plan = plan;
  return outcome;
}

// Runs it to its end.
template <class Run>
void run_to_end(Run& run, const Trace& trace, Outcome& outcome) {
  outcome.broken = run.run();
  outcome.hash = trace.hash();
  outcome.events = run.events();
  outcome.faults = run.happened();
}

}  // namespace

Outcome simulate(std::uint64_t seed, int world, bool prints) {
  const Plan plan = draw_plan(seed, world);
  Outcome outcome = begun(plan.text(), prints);
  if (!plan.spec.empty() && Reference::of(plan).imbalance() > 1e-6) {
    outcome.broken =
        "the undisturbed run of " + plan.spec + " loses " + std::to_string(Reference::of(plan).imbalance());
    return outcome;
  }
  Trace trace(prints);
  Job job(plan, trace);
  run_to_end(job, trace, outcome);
  for (const RankLog& log : job.logs()) {
    outcome.steps += log.next_step;
    for (const Ending& ending : log.endings) outcome.errors += ending.error ? 1U : 0U;
  }
  return outcome;
}

Outcome simulate_meeting(std::uint64_t seed, int world, bool prints) {
  const MeetingPlan plan = draw_meeting(seed, world);
  Outcome outcome = begun(plan.text(), prints);
  Trace trace(prints);
  Meeting meeting(plan, trace);
  run_to_end(meeting, trace, outcome);
  outcome.errors = meeting.errors();
  outcome.steps = meeting.met();
  return outcome;
}

Outcome simulate_served(std::uint64_t seed, int world, bool prints) {
  const ServedPlan plan = draw_served(seed, world);
  Outcome outcome = begun(plan.text(), prints);
  const auto& reference = ServedRun::reference_of(plan);
  Trace trace(prints);
  ServedRun run(plan, trace, &reference);
  run_to_end(run, trace, outcome);
  outcome.errors = run.errors();
  outcome.steps = run.served();
  return outcome;
}

Outcome simulate_elastic(std::uint64_t seed, int world, bool prints) {
  const ElasticPlan plan = draw_elastic(seed, world);
  Outcome outcome = begun(plan.text(), prints);
  Trace trace(prints);
  ElasticRun run(plan, trace);
  run_to_end(run, trace, outcome);
  outcome.errors = run.errors();
  outcome.steps = run.commits().size();
  return outcome;
}

}  // namespace deltawire::simulation
