#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "deltawire/optimizer.h"

namespace deltawire {
namespace {

std::string canonical(std::string_view spec) {
  const auto settings = parse_optimizer(spec);
  return settings ? optimizer_spec(*settings) : settings.error().message;
}

std::string refusal(std::string_view spec) {
  const auto settings = parse_optimizer(spec);
  if (settings) return "accepted";
  EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
  return settings.error().message;
}

TEST(OptimizerSettings, DefaultsArePyTorchs) {
  EXPECT_EQ(canonical("sgd"), "sgd:lr=0.001,weight_decay=0");
  EXPECT_EQ(canonical("momentum"), "momentum:lr=0.001,momentum=0.9,dampening=0,weight_decay=0");
  EXPECT_EQ(canonical("nesterov"), "nesterov:lr=0.001,momentum=0.9,weight_decay=0");
  EXPECT_EQ(canonical("adagrad"),
            "adagrad:lr=0.01,lr_decay=0,eps=1e-10,initial_accumulator=0,weight_decay=0");
  EXPECT_EQ(canonical("rmsprop"), "rmsprop:lr=0.01,alpha=0.99,eps=1e-08,weight_decay=0");
  EXPECT_EQ(canonical("adam"), "adam:lr=0.001,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0");
  EXPECT_EQ(canonical("adamw"), "adamw:lr=0.001,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0.01");
}

// Without a spec, all fields but the rate are 0: no momentum, no decay, no epsilon.
TEST(OptimizerSettings, UnsetFieldsAreZero) {
  const auto of = [](OptimizerKind kind) {
    OptimizerSettings settings;
    settings.kind = kind;
    EXPECT_TRUE(check_settings(settings));
    return optimizer_spec(settings);
  };
  EXPECT_EQ(optimizer_spec({}), "sgd:lr=0.001,weight_decay=0");
  EXPECT_EQ(of(OptimizerKind::kMomentum), "momentum:lr=0.001,momentum=0,dampening=0,weight_decay=0");
  EXPECT_EQ(of(OptimizerKind::kAdaGrad),
            "adagrad:lr=0.001,lr_decay=0,eps=0,initial_accumulator=0,weight_decay=0");
  EXPECT_EQ(of(OptimizerKind::kRmsProp), "rmsprop:lr=0.001,alpha=0,eps=0,weight_decay=0");
  EXPECT_EQ(of(OptimizerKind::kAdamW), "adamw:lr=0.001,beta1=0,beta2=0,eps=0,weight_decay=0");
}

TEST(OptimizerSettings, CanonicalSpecsReadBackAsTheSameSettings) {
  for (const char* spec :
       {"sgd:lr=0.1", "momentum:dampening=-0.25,lr=3e-7", "nesterov:momentum=0.3333333333333333",
        "adagrad:lr_decay=0.01,initial_accumulator=7", "rmsprop:alpha=1",
        "adam:beta1=0,beta2=0.12345678901234567", "adamw:weight_decay=1e-300"}) {
    const auto settings = parse_optimizer(spec);
    ASSERT_TRUE(settings) << spec;
    const auto again = parse_optimizer(optimizer_spec(*settings));
    ASSERT_TRUE(again) << optimizer_spec(*settings);
    EXPECT_EQ(*again, *settings) << spec;
    EXPECT_TRUE(check_settings(*settings));
  }
}

TEST(OptimizerSettings, RefusalsSayWhatIsKnown) {
  EXPECT_EQ(refusal("lion"),
            "no optimizer \"lion\": use one of sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw");
  EXPECT_EQ(refusal("sgd:momentum=0.9"), "sgd has no parameter \"momentum\": it has lr, weight_decay");
  EXPECT_EQ(refusal("adam:beta1=1"), "adam: beta1=1 is out of range: give 0 <= value < 1");
  EXPECT_EQ(refusal("rmsprop:alpha=1.5"), "rmsprop: alpha=1.5 is out of range: give 0 <= value <= 1");
  EXPECT_EQ(refusal("sgd:lr=-1"), "sgd: lr=-1 is out of range: give a number >= 0");
  EXPECT_NE(refusal("").find("names no optimizer"), std::string::npos);
  for (const char* spec : {"sgd:lr", "sgd:lr=", "sgd:lr=1,lr=1", "sgd:lr=nan", "sgd:lr=inf", "sgd:lr=1x",
                           "sgd: lr=1", "SGD", "momentum:dampening=inf", "adagrad:eps=-1e-10"}) {
    EXPECT_NE(refusal(spec), "accepted") << spec;
  }
}

TEST(OptimizerSettings, SettingsThatNoSpecGivesAreRefusedToo) {
  OptimizerSettings settings;
  settings.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(check_settings(settings));
  EXPECT_FALSE(make_optimizer(settings));
  settings.learning_rate = 1;
  settings.beta1 = 7;  // no parameter of SGD
  EXPECT_TRUE(check_settings(settings));
  settings.kind = OptimizerKind{99};
  ASSERT_FALSE(check_settings(settings));
  EXPECT_EQ(optimizer_spec(settings), "unknown");
}

}  // namespace
}  // namespace deltawire
