// Each optimizer's step against its formula, in double and element by element as torch.optim documents it.
// The constants are large enough that a misplaced term is noticed.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/optimizer.h"

namespace deltawire {
namespace {

// One element and its moments.
struct Element {
  double p = 0;
  double first = 0;
  double second = 0;
};

using Rule = std::function<void(Element&, double g, double t)>;

struct Case {
  std::string spec;
  Rule rule;
};

std::vector<Case> cases() {
  return {
      {"sgd:lr=0.1,weight_decay=0.2", [](Element& e, double g, double) { e.p -= 0.1 * (g + 0.2 * e.p); }},
      {"momentum:lr=0.1,momentum=0.8,dampening=0.3,weight_decay=0.2",
       [](Element& e, double g, double t) {
         g += 0.2 * e.p;
         e.first = t == 1 ? g : 0.8 * e.first + 0.7 * g;
         e.p -= 0.1 * e.first;
       }},
      {"nesterov:lr=0.1,momentum=0.8,weight_decay=0.2",
       [](Element& e, double g, double) {
         g += 0.2 * e.p;
         e.first = 0.8 * e.first + g;
         e.p -= 0.1 * (g + 0.8 * e.first);
       }},
      {"adagrad:lr=0.1,lr_decay=0.5,eps=0.3,initial_accumulator=0.4,weight_decay=0.2",
       [](Element& e, double g, double t) {
         if (t == 1) e.second = 0.4;
         g += 0.2 * e.p;
         e.second += g * g;
         e.p -= 0.1 / (1 + (t - 1) * 0.5) * g / (std::sqrt(e.second) + 0.3);
       }},
      {"rmsprop:lr=0.1,alpha=0.7,eps=0.3,weight_decay=0.2",
       [](Element& e, double g, double) {
         g += 0.2 * e.p;
         e.second = 0.7 * e.second + 0.3 * g * g;
         e.p -= 0.1 * g / (std::sqrt(e.second) + 0.3);
       }},
      {"adam:lr=0.1,beta1=0.6,beta2=0.7,eps=0.3,weight_decay=0.2",
       [](Element& e, double g, double t) {
         g += 0.2 * e.p;
         e.first = 0.6 * e.first + 0.4 * g;
         e.second = 0.7 * e.second + 0.3 * g * g;
         const double m = e.first / (1 - std::pow(0.6, t));
         const double v = e.second / (1 - std::pow(0.7, t));
         e.p -= 0.1 * m / (std::sqrt(v) + 0.3);
       }},
      {"adamw:lr=0.1,beta1=0.6,beta2=0.7,eps=0.3,weight_decay=0.2",
       [](Element& e, double g, double t) {
         e.p *= 1 - 0.1 * 0.2;
         e.first = 0.6 * e.first + 0.4 * g;
         e.second = 0.7 * e.second + 0.3 * g * g;
         const double m = e.first / (1 - std::pow(0.6, t));
         const double v = e.second / (1 - std::pow(0.7, t));
         e.p -= 0.1 * m / (std::sqrt(v) + 0.3);
       }},
  };
}

TEST(OptimizerRules, StepsAreTheFormulas) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.spec);
    auto optimizer = make_optimizer(one.spec);
    ASSERT_TRUE(optimizer) << optimizer.error().message;
    std::vector<float> parameters{1.0F, -2.0F, 0.5F, 3.0F};
    std::vector<Element> wanted{{1.0}, {-2.0}, {0.5}, {3.0}};
    for (int t = 1; t <= 5; ++t) {
      std::vector<float> gradient;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const double g = 0.25 * (t % 3 + 1) * (i % 2 == 0 ? 1 : -1) + 0.125 * static_cast<double>(i);
        gradient.push_back(static_cast<float>(g));
        one.rule(wanted[i], g, t);
      }
      ASSERT_TRUE(optimizer->step("w", parameters, gradient));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_NEAR(parameters[i], wanted[i].p, 2e-6) << "step " << t << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace deltawire
