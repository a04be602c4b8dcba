package pack

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"gloom/cmd/jq-master/job"
)

// bytesOf returns the bytes that hexadecimal digits stand for.
func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCheckAcceptsOneWholeValue: a text must be exactly one whole value that is not nested too
// deeply.
func TestCheckAcceptsOneWholeValue(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("91", n) + "c0" }
	for _, c := range []struct{ name, bytes, text string }{
		{"nothing", "", "cut short at byte 0"},
		{"null", "c0", ""}, {"a fixint", "7f", ""}, {"a negative one", "e0", ""},
		{"never used", "c1", "byte 0 is 0xc1"},
		{"never used, within", "92 01 c1", "byte 2 is 0xc1"},
		{"trailing", "c0 c0 c0", "2 bytes follow the value, which ends at byte 1"},
		{"an empty map", "80", ""}, {"a map without its value", "81 a1 61", "cut short at byte 3"},
		{"a map cut short", "82 a1 61 01 a1", "announces 1 bytes, but 0 are left"},
		{"a key cut short", "81 a3 61", "announces 3 bytes, but 1 are left"},
		{"a head cut short", "92 01 cd 01", "cut short at byte 4"},
		{"a huge array", "dd ffffffff", "the array at byte 0 announces 4294967295 values, but 0 bytes are left"},
		{"a huge map", "df ffffffff 00", "announces 8589934590 values, but 1 bytes"},
		{"a huge string", "db ffffffff 61", "announces 4294967295 bytes, but 1 are left"},
		{"a huge bin", "c6 ffffffff 61", "announces 4294967295 bytes"},
		{"a huge ext", "c9 ffffffff 01 61", "announces 4294967295 bytes"},
		{"fixext", "d8 01 00000000000000000000000000000000", ""},
		{"fixext cut short", "d8 01 0000", "announces 16 bytes, but 2 are left"},
		{"at the deepest", nested(MaxDepth), ""},
		{"too deep", nested(MaxDepth + 1), "deeper than 100 at byte 100"},
		{"a million deep", nested(1 << 20), "deeper than 100"},
		{"empty ones within", "93 90 80 a0", ""},
	} {
		fault := Check(bytesOf(t, c.bytes))
		switch {
		case c.text == "" && fault != nil:
			t.Errorf("%s: %v", c.name, fault)
		case c.text != "" && (fault == nil || fault.Code != job.InvalidBody || !strings.Contains(fault.Reason, c.text)):
			t.Errorf("%s: %v, want %q", c.name, fault, c.text)
		}
	}
}

// TestCutEverywhere: no proper prefix of a valid value is valid, and no byte is read beyond the
// end.
func TestCutEverywhere(t *testing.T) {
	data, err := msgpack.Marshal(map[string]any{
		"a": []any{1, -1, 200, 70000, int64(1) << 40, 1.5, float32(2.5), true, nil, "text", []byte("bin")},
		"b": map[string]any{"c": strings.Repeat("x", 300), "d": bytes.Repeat([]byte("y"), 70000)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if fault := Check(data); fault != nil {
		t.Fatal(fault)
	}
	for n := 0; n < len(data); n += 1 + n/200 {
		if Check(data[:n:n]) == nil {
			t.Fatalf("the first %d bytes of %d are taken for a value", n, len(data))
		}
	}
}

// TestValuesOfOtherLibraryAreRead: values that another library writes are read correctly.
func TestValuesOfOtherLibraryAreRead(t *testing.T) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	_ = enc.EncodeArrayLen(10)
	_ = enc.EncodeInt8(-5)
	_ = enc.EncodeUint64(math.MaxUint64)
	_ = enc.EncodeFloat32(0.1)
	_ = enc.EncodeBool(true)
	_ = enc.EncodeString("é")
	_ = enc.EncodeBytes([]byte{1, 2})
	_ = enc.EncodeMapLen(2)
	_ = enc.EncodeString("k")
	_ = enc.EncodeInt(1)
	_ = enc.EncodeString("k")
	_ = enc.EncodeInt(2)
	_ = enc.EncodeExtHeader(-7, 1)
	b.WriteByte('!')
	_ = enc.EncodeInt16(-300)
	_ = enc.EncodeNil()
	if fault := Check(b.Bytes()); fault != nil {
		t.Fatal(fault)
	}
	v := Value(b.Bytes())
	integerAt := func(i int) int64 { n, _ := v.Item(i).Number().Integer(); return n }
	switch ext := v.Item(7); {
	case v.Kind() != Array || v.Len() != 10 || v.Item(10) != nil,
		integerAt(0) != -5, integerAt(8) != -300,
		v.Item(1).Number().Float() != math.MaxUint64, v.Item(2).Number().Float() != float64(float32(0.1)),
		!v.Item(3).Bool(), !v.Item(4).Is("é"), string(v.Item(5).Bytes()) != "\x01\x02", v.Item(5).Kind() != Bin,
		ext.Kind() != Ext || ext.ExtType() != -7 || string(ext.Bytes()) != "!",
		v.Item(9).Kind() != Nil:
		t.Errorf("%x is read wrongly", []byte(v))
	}
	if n, ok := v.Item(6).Field("k").Number().Integer(); n != 2 || !ok {
		t.Errorf("of a key that comes twice the value is %d, want the last, 2", n)
	}
	if v.Item(6).Field("none") != nil || v.Field("k") != nil {
		t.Error("a missing key is found")
	}
	if _, ok := v.Item(1).Number().Integer(); ok {
		t.Error("2⁶⁴-1 passes for an int64")
	}
}

// exact returns the exact value of a number.
func exact(n Number) *big.Float {
	f := new(big.Float).SetPrec(200)
	switch n.kind {
	case Int:
		return f.SetInt64(int64(n.bits))
	case Uint:
		return f.SetUint64(n.bits)
	}
	return f.SetFloat64(n.Float())
}

// TestNumbersCompareByValue: numbers compare by their exact values, whatever their forms.
func TestNumbersCompareByValue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	edges := []Number{
		{Uint, 0}, {Uint, 1 << 63}, {Uint, 1<<63 + 1}, {Uint, math.MaxUint64}, {Uint, 1 << 53}, {Uint, 1<<53 + 1},
		{Int, 0}, {Int, math.MaxUint64}, {Int, 1 << 63}, {Int, 1<<63 + 1},
	}
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 1 << 53, 1 << 63, 1 << 64, -1 << 63, -1<<63 - 2048, math.Inf(1), math.Inf(-1), math.MaxFloat64} {
		edges = append(edges, Number{Float, math.Float64bits(f)})
	}
	for range 200 {
		near := edges[rnd.IntN(len(edges))]
		near.bits += uint64(rnd.IntN(5)) - 2
		if near.kind != Float || !math.IsNaN(near.Float()) {
			edges = append(edges, near)
		}
	}
	for _, a := range edges {
		for _, b := range edges {
			if got, ok := a.Compare(b); !ok || got != exact(a).Cmp(exact(b)) {
				t.Fatalf("%v compares to %v as %d, %v", exact(a), exact(b), got, ok)
			}
		}
		nan := Number{Float, math.Float64bits(math.NaN())}
		if _, ok := a.Compare(nan); ok {
			t.Fatalf("%v is ordered beside NaN", exact(a))
		}
		if _, ok := nan.Compare(a); ok {
			t.Fatalf("NaN is ordered beside %v", exact(a))
		}
	}
}

// FuzzCheck: no input causes a panic, and another library can skip every value that Check accepts,
// to the last byte.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"c0", "82a16101a1629301c2c3", "dd00000002c4010090", "d80100000000000000000000000000000000", "cb7ff8000000000000", "c1", "df7fffffff"} {
		b, _ := hex.DecodeString(seed)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if Check(b) != nil {
			return
		}
		r := bytes.NewReader(b)
		if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() != 0 {
			t.Fatalf("%x is taken; another library: %v, %d bytes left", b, err, r.Len())
		}
		walk(t, b)
	})
}

// walk visits all parts of a value and checks their lengths.
func walk(t *testing.T, v Value) {
	n := 0
	switch v.Kind() {
	case Array:
		for item := range v.Items() {
			walk(t, item)
			n++
		}
	case Map:
		for k, item := range v.Pairs() {
			walk(t, k)
			walk(t, item)
			n++
		}
	case String, Bin, Ext:
		n = len(v.Bytes())
	case None:
		t.Fatal("a part is nothing")
	default:
		return
	}
	if n != v.Len() {
		t.Fatalf("%x has %d parts, it says %d", []byte(v), n, v.Len())
	}
}
