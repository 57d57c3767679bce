it("pass", () => {});
describe("suite", () => { it("in suite", () => { throw new Error("of the second file"); }); });
