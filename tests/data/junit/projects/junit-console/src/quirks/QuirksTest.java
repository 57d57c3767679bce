package quirks;

import static org.junit.jupiter.api.Assertions.*;

import java.util.stream.Stream;
import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

class QuirksTest {
    @Test void passes() {}

    @Test void fails() { assertEquals(1, 2, "control \u001b[31mred\u001b[0m \u0000 ]]> & <b>"); }

    @Test void throwsIt() { throw new IllegalStateException("an exception is an error"); }

    @Test @Disabled("not today") void skipped() {}

    @Test void assumed() { Assumptions.assumeTrue(false, "not here"); }

    @Test @DisplayName("shown <otherwise>") void named() {}

    @ParameterizedTest @ValueSource(ints = {1, 2}) void odd(int number) { assertEquals(1, number % 2); }

    @ParameterizedTest @MethodSource("objects") void objects(Object one) {}
    static Stream<Object> objects() { return Stream.of(new Object()); }

    @RepeatedTest(2) void repeated() {}

    @TestFactory Stream<DynamicTest> dynamic() { return Stream.of(DynamicTest.dynamicTest("made up", () -> {})); }

    @Nested class Inner { @Test void deep() {} }
}
