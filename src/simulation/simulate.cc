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
void run_to_end(auto& run, const Trace& trace, Outcome& outcome) {
  outcome.broken = run.run();
  outcome.hash = trace.hash();
  outcome.events = run.events();
  outcome.faults = run.happened();
}

// The same of a run that counts errors and, by `steps`, steps. `more`: what it is made of besides its plan.
template <class Run, class Plan, class Steps, class... More>
Outcome outcome_of(const Plan& plan, bool prints, const Steps& steps, const More&... more) {
  Outcome outcome = begun(plan.text(), prints);
  Trace trace(prints);
  Run run(plan, trace, more...);
  run_to_end(run, trace, outcome);
  outcome.errors = run.errors();
  outcome.steps = steps(run);
  return outcome;
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
  return outcome_of<Meeting>(draw_meeting(seed, world), prints, [](const Meeting& run) { return run.met(); });
}

Outcome simulate_served(std::uint64_t seed, int world, bool prints) {
  const ServedPlan plan = draw_served(seed, world);
  const auto* const reference = &ServedRun::reference_of(plan);
  return outcome_of<ServedRun>(plan, prints, [](const ServedRun& run) { return run.served(); }, reference);
}

Outcome simulate_elastic(std::uint64_t seed, int world, bool prints) {
  return outcome_of<ElasticRun>(draw_elastic(seed, world), prints,
                                [](const ElasticRun& run) { return run.commits().size(); });
}

}  // namespace deltawire::simulation
