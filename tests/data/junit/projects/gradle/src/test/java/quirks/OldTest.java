package quirks;

import static org.junit.Assert.*;

import org.junit.*;

public class OldTest {
    @Test public void passes() {}

    @Test public void fails() { assertEquals("control \u001b[31mred\u001b[0m ]]> & <b>", 1, 2); }

    @Test public void throwsIt() { throw new IllegalStateException("gradle calls an exception a failure"); }

    @Test @Ignore("not today") public void skipped() {}

    @Test public void assumed() { Assume.assumeTrue(false); }
}
