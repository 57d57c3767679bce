#include <catch2/catch.hpp>

#include <stdexcept>

TEST_CASE("pass") { CHECK(true); }
TEST_CASE("fail") { INFO("control \x1b[31mred\x1b[0m ]]> & <b>"); CHECK(1 == 2); }
TEST_CASE("throws") { throw std::runtime_error("an exception is an error"); }
TEST_CASE("may fail", "[!mayfail]") { CHECK(1 == 2); }
TEST_CASE("should fail", "[!shouldfail]") { CHECK(1 == 2); }
TEST_CASE("hidden", "[.]") { CHECK(true); }
TEST_CASE("sections") {
    SECTION("first") { CHECK(true); }
    SECTION("second") { CHECK(1 == 2); }
}
struct Fixture {};
TEST_CASE_METHOD(Fixture, "method") { CHECK(true); }
TEMPLATE_TEST_CASE("typed", "[t]", int, char) { CHECK(TestType() == 0); }
