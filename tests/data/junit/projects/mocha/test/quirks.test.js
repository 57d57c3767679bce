it("pass", () => {});
it("fail", () => { throw new Error("no"); });
it("control characters", () => { throw new Error("\u001b[31mred\u001b[0m \u0000 & <b> \"q\""); });
it.skip("skip", () => {});
it("todo");
it("twice", () => {});
it("twice", () => { throw new Error("second"); });
describe("suite", () => {
  it("in suite", () => {});
  describe("inner", () => { it("deep <&>", () => {}); });
});
describe("broken hook", () => {
  before(() => { throw new Error("hook"); });
  it("never", () => {});
});
