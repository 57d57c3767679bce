test("pass", () => {});
test("fail", () => { expect(1).toBe(2); });
test("control characters", () => { throw new Error("\u001b[31mred\u001b[0m \u0000 & <b> \"q\""); });
test.skip("skip", () => {});
test.todo("todo");
test("twice", () => {});
test("twice", () => { throw new Error("second"); });
describe("suite", () => {
  test("in suite", () => {});
  describe("inner", () => { test("deep <&>", () => {}); });
});
describe("broken hook", () => {
  beforeAll(() => { throw new Error("hook"); });
  test("never", () => {});
});
test.each([[1, 2], [3, 4]])("adds %i to %i", () => {});
