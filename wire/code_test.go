package wire_test

import (
	"testing"

	"gloom/wire"
)

func TestCodesMatchGolden(t *testing.T) {
	type row struct {
		Name     string
		Reach    string
		NamesJob bool `json:"names_job"`
		EndsJob  bool `json:"ends_job"`
	}
	effectNames := map[wire.ConnEffect]string{wire.StaysOpen: "reply", wire.Closes: "close", wire.MayClose: "either"}
	rows := loadGolden[row](t, "codes.json")
	codes := wire.Codes()
	if len(rows) != len(codes) {
		t.Fatalf("%d codes, the golden table has %d", len(codes), len(rows))
	}
	for i, code := range codes {
		got := row{code.String(), effectNames[code.ConnEffect()], code.NamesJob(), code.EndsJob()}
		if got != rows[i] {
			t.Errorf("code %d is %+v, the golden table says %+v", code, got, rows[i])
		}
		if parsedCode, ok := wire.ParseCode(code.String()); parsedCode != code || !ok {
			t.Errorf("%v parses to %v, %v", code, parsedCode, ok)
		}
	}
}

func TestUnknownCodesAreNotParsed(t *testing.T) {
	for _, name := range []string{"", "none", "Missing_Field", "missing_field "} {
		if c, ok := wire.ParseCode(name); ok || c != 0 {
			t.Errorf("%q parses to %v", name, c)
		}
	}
	for _, c := range []wire.Code{0, 200} {
		if c.String() != "none" || c.EndsJob() || c.NamesJob() {
			t.Errorf("code %d is %v", uint8(c), c)
		}
	}
}
