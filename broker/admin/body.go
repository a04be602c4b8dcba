package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gloom/broker"
	"gloom/broker/admin/api"
)

// maxBody bounds the body of a request in bytes.
const maxBody = 64 << 10

// body is the JSON object of a request, by key. Null values count as absent.
type body map[string]json.RawMessage

// readBody reads a request's body, which may have only these keys. An empty body counts as an
// empty object.
func readBody(r *http.Request, keys ...string) (body, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, apiError(http.StatusBadRequest, "invalid_body", "reading the body: %v", err)
	case len(data) > maxBody:
		return nil, apiError(http.StatusRequestEntityTooLarge, "invalid_body", "the body has more than %d bytes", maxBody)
	case len(data) == 0:
		return nil, nil
	}
	return parseObject(data, keys...)
}

// parseObject parses a JSON object that may have only these keys.
func parseObject(data []byte, keys ...string) (body, error) {
	if !utf8.Valid(data) {
		return nil, apiError(http.StatusBadRequest, "invalid_body", "the body is not UTF-8")
	}
	var b body
	if err := json.Unmarshal(data, &b); err != nil || b == nil {
		return nil, apiError(http.StatusBadRequest, "invalid_body", "the body must be a JSON object, got %.64q", data)
	}
	for key, v := range b {
		if !slices.Contains(keys, key) {
			keyList := "no keys"
			if len(keys) > 0 {
				keyList = strings.Join(keys, ", ")
			}
			return nil, apiError(http.StatusBadRequest, "invalid_body", "the body has the unknown key %.64q; this path takes %s", key, keyList)
		}
		if string(v) == "null" && key != "body" {
			delete(b, key)
		}
	}
	return b, nil
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)

// integer reads an integer; if the key is absent, the result is def.
func (b body) integer(key string, low, high, def int64) (int64, error) {
	v, ok := b[key]
	if !ok {
		return def, nil
	}
	if !wholeNumber.Match(v) {
		return 0, invalidError("invalid_type", key, v, "an integer from %d to %d", low, high)
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < low || n > high {
		return 0, invalidError("invalid_value", key, v, "an integer from %d to %d", low, high)
	}
	return n, nil
}

// rateAndBurst reads rate and burst; an absent value is 0. minBurst is the smallest burst allowed;
// if it is above 0, the rate must be above 0, too.
func (b body) rateAndBurst(minBurst int64) (rate float64, burst int64, err error) {
	if v, ok := b["rate"]; ok {
		want := "a number from 0 to %g"
		if minBurst > 0 {
			want = "a number above 0, at most %g"
		}
		if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
			return 0, 0, invalidError("invalid_type", "rate", v, want, float64(broker.MaxRate))
		}
		rate, err = strconv.ParseFloat(string(v), 64)
		if err != nil || rate < 0 || rate > broker.MaxRate || minBurst > 0 && rate == 0 {
			return 0, 0, invalidError("invalid_value", "rate", v, want, float64(broker.MaxRate))
		}
	}
	burst, err = b.integer("burst", minBurst, broker.MaxBurst, 0)
	if err == nil && burst > 0 && rate == 0 {
		err = apiError(http.StatusBadRequest, "invalid_value", "burst needs a rate, got burst %d without one", burst)
	}
	return rate, burst, err
}

// boolean reads a required key that is true or false.
func (b body) boolean(key string) (bool, error) {
	v, ok := b[key]
	switch {
	case !ok:
		return false, apiError(http.StatusBadRequest, "missing_field", "the body needs %s: true or false", key)
	case string(v) != "true" && string(v) != "false":
		return false, invalidError("invalid_type", key, v, "true or false")
	}
	return string(v) == "true", nil
}

func invalidError(code, key string, v json.RawMessage, want string, args ...any) *api.Error {
	return apiError(http.StatusBadRequest, code, "%s must be "+want+", got %.64s", append(append([]any{key}, args...), v)...)
}
