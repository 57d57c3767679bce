const { test, describe, it } = require("node:test");
const assert = require("node:assert");

test("pass", () => {});
test("fail", () => assert.strictEqual(1, 2));
test("control characters", () => { throw new Error("\u001b[31mred\u001b[0m \u0000 & <b> \"q\""); });
test("skip", { skip: "not today" }, () => {});
test("todo passes", { todo: true }, () => {});
test("todo fails", { todo: "later" }, () => { throw new Error("not yet"); });
test("twice", () => {});
test("twice", () => { throw new Error("second"); });
test("parent", async (t) => {
  await t.test("child passes", () => {});
  await t.test("child fails", () => { throw new Error("child"); });
});
describe("suite", () => {
  it("in suite", () => {});
  describe("inner", () => { it("deep <&>", () => {}); });
});
describe("broken hook", () => {
  require("node:test").before(() => { throw new Error("hook"); });
  it("never", () => {});
});
