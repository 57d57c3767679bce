import test from "node:test";
test("pass", () => {});
