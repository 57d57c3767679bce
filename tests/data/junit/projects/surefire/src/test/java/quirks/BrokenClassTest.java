package quirks;

import org.junit.jupiter.api.*;

class BrokenClassTest {
    @BeforeAll static void before() { throw new IllegalStateException("class"); }

    @Test void never() {}
}
