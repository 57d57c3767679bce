package quirks;

import org.junit.*;

public class BrokenClassTest {
    @BeforeClass public static void before() { throw new IllegalStateException("class"); }

    @Test public void never() {}
}
