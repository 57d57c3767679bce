package quirks;

import static org.junit.Assert.*;

import org.junit.*;

public class OldTest {
    @Test public void passes() {}

    @Test public void fails() { assertEquals(1, 2); }

    @Test @Ignore("not today") public void skipped() {}
}
