#include <gtest/gtest.h>

#include <cstdlib>

TEST(Crashes, First) {}
TEST(Crashes, Aborts) { std::abort(); }
