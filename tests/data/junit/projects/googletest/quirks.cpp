#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

TEST(Quirks, Pass) {}
TEST(Quirks, Fail) { EXPECT_EQ(1, 2) << "control \x1b[31mred\x1b[0m ]]> & <b>"; }
TEST(Quirks, Throws) { throw std::runtime_error("an exception is a failure"); }
TEST(Quirks, Skip) { GTEST_SKIP() << "not today"; }
TEST(Quirks, DISABLED_Off) {}

class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, IsOdd) { EXPECT_EQ(GetParam() % 2, 1); }
INSTANTIATE_TEST_SUITE_P(Some, Numbers, testing::Values(7, 8));

template <typename T>
class Typed : public testing::Test {};
using Types = testing::Types<int, std::string>;
TYPED_TEST_SUITE(Typed, Types);
TYPED_TEST(Typed, Empty) { EXPECT_TRUE(TypeParam() == TypeParam()); }
