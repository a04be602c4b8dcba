package load

// Number identifies one job of a run by three numbers: its submitter, its slot among the
// submitter's slots, and how often the slot had been taken. So the number in an answer shows
// whether its job is outstanding, was answered before, or never existed.
type Number uint64

const (
	slotBits       = 22 // 4 M jobs outstanding per submitter
	generationBits = 30
	submitterBits  = 12

	// MaxSubmitters is the largest number of submitters in one run.
	MaxSubmitters = 1 << submitterBits
	// MaxOutstanding is the largest number of jobs that one submitter may have outstanding.
	MaxOutstanding = 1 << slotBits
	// NumberLen is the length of a number's text.
	NumberLen = 13
)

const digits = "0123456789abcdefghijklmnopqrstuv"

var digitValue = func() (t [256]uint8) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(digits) {
		t[digits[i]] = uint8(i)
	}
	return t
}()

func makeNumber(sub, generation, slot uint32) Number {
	return Number(sub)<<(generationBits+slotBits) | Number(generation)<<slotBits | Number(slot)
}

func (n Number) slot() uint32       { return uint32(n) & (1<<slotBits - 1) }
func (n Number) generation() uint32 { return uint32(n>>slotBits) & (1<<generationBits - 1) }

// Submitter returns the index of the submitter that sent the job.
func (n Number) Submitter() int { return int(n >> (generationBits + slotBits)) }

// Append appends the number's text: NumberLen characters that JSON, Redis keys and
// NATS subjects accept as they are.
func (n Number) Append(dst []byte) []byte {
	var t [NumberLen]byte
	for i := NumberLen - 1; i >= 0; i-- {
		t[i] = digits[n&31]
		n >>= 5
	}
	return append(dst, t[:]...)
}

// ParseNumber reads the output of Append and refuses any other text.
func ParseNumber(text []byte) (Number, bool) {
	if len(text) != NumberLen || text[0] > 'f' { // 13 digits hold one bit too many
		return 0, false
	}
	var n Number
	var invalid uint8
	for _, c := range text {
		v := digitValue[c]
		invalid |= v
		n = n<<5 | Number(v&31)
	}
	return n, invalid < 32
}
