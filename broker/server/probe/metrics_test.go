package probe

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var plainHTTP = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// get sends a GET request.
func (d *daemon) get(path string) (status int, body string, err error) {
	res, err := plainHTTP.Get("http://" + d.httpAddr + path)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// readSamples reads /metrics and returns the values by the name of the sample with its labels.
func (d *daemon) readSamples() (map[string]float64, error) {
	status, text, err := d.get("/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics: status %d", status)
	}
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		if end := strings.LastIndexByte(line, '}'); cut < end || cut < 0 {
			return nil, fmt.Errorf("/metrics: line %q", line)
		}
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: line %q: %w", line, err)
		}
		out[line[:cut]] = v
	}
	return out, nil
}

// checkLedger checks that the imbalance gauge exists and is zero.
func (d *daemon) checkLedger() error {
	samples, err := d.readSamples()
	if err != nil {
		return err
	}
	found := false
	for k, v := range samples {
		if family, _, _ := strings.Cut(k, "{"); strings.HasPrefix(family, "gloom_") && strings.HasSuffix(family, "imbalance") {
			found = true
			if v != 0 {
				return fmt.Errorf("ledger out of balance: %s = %v", k, v)
			}
		}
	}
	if !found {
		return fmt.Errorf("/metrics has no gloom_…imbalance gauge")
	}
	return nil
}

// roundedSince returns the time since t, rounded for messages.
func roundedSince(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
