package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"gloom/bench/throwaway"
)

// manifest is the part of a Kubernetes object that the tests read.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []container
				Volumes                       []struct {
					Secret struct {
						SecretName string `yaml:"secretName"`
					}
				}
			}
		}
		Ports           []struct{ Name string }
		Endpoints       []struct{ Port, Path string }
		ScaleTargetRef  struct{ Name string }        `yaml:"scaleTargetRef"`
		SecretTargetRef []struct{ Name, Key string } `yaml:"secretTargetRef"`
		Triggers        []struct {
			Metadata struct {
				URL           string
				ValueLocation string `yaml:"valueLocation"`
			}
		}
	}
}

type container struct {
	Image          string
	Args           []string
	Env            []struct{ Name, Value string }
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// manifests reads what kustomization.yaml names, by kind and name.
func manifests(t *testing.T) map[string]*manifest {
	t.Helper()
	read := func(name string) *yaml.Decoder {
		data, err := os.ReadFile(filepath.Join("kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		return yaml.NewDecoder(bytes.NewReader(data))
	}
	var list struct {
		Resources []string
		Secrets   []struct {
			Name    string
			Files   []string
			Options struct {
				Fixed bool `yaml:"disableNameSuffixHash"`
			}
		} `yaml:"secretGenerator"`
	}
	if err := read("kustomization.yaml").Decode(&list); err != nil {
		t.Fatal(err)
	}
	found := map[string]*manifest{}
	for _, name := range list.Resources {
		for dec := read(name); ; {
			var m manifest
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			found[m.Kind+" "+m.Metadata.Name] = &m
		}
	}
	for _, name := range []string{"Deployment gloomd", "Service gloomd", "Deployment sums", "ServiceMonitor gloomd", "ScaledObject sums", "TriggerAuthentication gloom-watch"} {
		if found[name] == nil {
			t.Fatalf("there is no %s", name)
		}
	}
	// References to a secret that kustomize does not know need a secret with a fixed
	// name.
	auth := found["TriggerAuthentication gloom-watch"].Spec.SecretTargetRef[0]
	fixed := false
	for _, x := range list.Secrets {
		fixed = fixed || x.Name == auth.Name && x.Options.Fixed && x.Files[0] == auth.Key+"=watch.token"
	}
	if !fixed {
		t.Errorf("no secret is named %s and has a %s", auth.Name, auth.Key)
	}
	return found
}

// TestManifestsWorkWithoutCluster follows the manifests without a cluster: the broker and a worker
// run with their environment, arguments and secrets; the probes, the scraper and the autoscaler
// send their requests, to the names of the service.
func TestManifestsWorkWithoutCluster(t *testing.T) {
	objects := manifests(t)
	broker, worker := &objects["Deployment gloomd"].Spec.Template.Spec, &objects["Deployment sums"].Spec.Template.Spec
	dir, err := os.MkdirTemp("", "gloom")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	script, err := os.ReadFile("kubernetes/tokens.sh")
	if err == nil {
		err = os.WriteFile(dir+"/tokens.sh", script, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	runCommand(t, nil, dir+"/tokens.sh")
	tokens, err := os.ReadFile(dir + "/tokens")
	if err != nil {
		t.Fatal(err)
	}
	if runCommand(t, nil, dir+"/tokens.sh"); string(tokens) != runCommand(t, nil, "cat", dir+"/tokens") {
		t.Error("tokens.sh makes other tokens when it runs again")
	}
	token := func(name string) string { return runCommand(t, nil, "cat", dir+"/"+name+".token") }
	buildPrograms(t, dir)

	// env returns a container's environment, with the values that this test changes.
	env := func(c container, help string, env map[string]string) []string {
		vars := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		for _, v := range c.Env {
			flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v.Name, "GLOOM_")), "_", "-") + " "
			if !strings.Contains(help, flag) && !strings.Contains(help, v.Name+")") {
				t.Errorf("%s is no option of %s", v.Name, c.Image)
			}
			if _, ok := env[v.Name]; !ok {
				vars = append(vars, v.Name+"="+v.Value)
			}
		}
		for name, value := range env {
			vars = append(vars, name+"="+value)
		}
		return vars
	}
	start := func(name string, vars []string, args ...string) {
		var log bytes.Buffer
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = vars, &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			if _ = cmd.Wait(); t.Failed() {
				t.Logf("%s:\n%s", name, log.String())
			}
		})
	}
	port, err := throwaway.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	start(dir+"/gloomd", env(broker.Containers[0], runCommand(t, nil, dir+"/gloomd", "--help"), map[string]string{
		"GLOOM_TOKEN_FILE": dir + "/tokens", "GLOOM_HTTP_ADDR": addr,
		"GLOOM_SUBMIT_ADDR": "unix:" + dir + "/s", "GLOOM_WORKER_ADDR": "unix:" + dir + "/w",
	}))
	// get repeats a request to a name of the service until it is answered.
	get := func(host, path, bearer string) (body string) {
		t.Helper()
		var last string
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			r, err := http.NewRequest("GET", "http://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Host = host; bearer != "" {
				r.Header.Set("Authorization", "Bearer "+bearer)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				last = err.Error()
				continue
			}
			data, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode == 200 {
				return string(data)
			}
			last = resp.Status + ": " + string(data)
		}
		t.Fatalf("GET %s of %s: %s", path, host, last)
		return ""
	}
	ofPod := "10.0.0.1:9997" // for a request directly to a pod
	get(ofPod, broker.Containers[0].ReadinessProbe.HTTPGet.Path, "")
	get(ofPod, broker.Containers[0].LivenessProbe.HTTPGet.Path, "")
	scrape := objects["ServiceMonitor gloomd"].Spec.Endpoints[0]
	if !strings.Contains(get(ofPod, scrape.Path, ""), "gloom_jobs_submitted_total") {
		t.Error("the scraper gets no metrics")
	}
	if !slices.ContainsFunc(objects["Service gloomd"].Spec.Ports, func(p struct{ Name string }) bool { return p.Name == scrape.Port }) {
		t.Errorf("the service has no port %q", scrape.Port)
	}

	scaled := &objects["ScaledObject sums"].Spec
	if objects["Deployment "+scaled.ScaleTargetRef.Name] == nil {
		t.Errorf("there is no Deployment %q", scaled.ScaleTargetRef.Name)
	}
	trigger := scaled.Triggers[0].Metadata
	query, err := url.Parse(trigger.URL)
	if err != nil {
		t.Fatal(err)
	}
	demand := func() float64 {
		var answer map[string]float64
		text := get(query.Host, query.Path, token("watch"))
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		value, ok := answer[trigger.ValueLocation]
		if !ok {
			t.Fatalf("%s has no %q", text, trigger.ValueLocation)
		}
		return value
	}
	typ := worker.Containers[0].Args[1]
	submit := exec.Command(dir+"/gloom", "submit", typ, "hello")
	submit.Env = []string{"GLOOM_SUBMIT_ADDR=unix:" + dir + "/s", "GLOOM_TOKEN=" + token("submit"), "HOME=" + dir}
	answer := make(chan string)
	go func() {
		out, err := submit.CombinedOutput()
		answer <- fmt.Sprintf("%s (%v)", out, err)
	}()
	for deadline := time.Now().Add(30 * time.Second); demand() != 1; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a job that waits is no demand")
		}
	}
	start(dir+"/gloom", env(worker.Containers[0], runCommand(t, nil, dir+"/gloom", "help", "flags"), map[string]string{
		"GLOOM_WORKER_ADDR": "unix:" + dir + "/w", "GLOOM_CLIENT_TOKEN_FILE": dir + "/work.token",
	}), worker.Containers[0].Args...)
	if out := <-answer; !strings.HasPrefix(out, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824") {
		t.Errorf("the answer is %s", out)
	}
	if got := demand(); got != 0 {
		t.Errorf("the demand is %v when all is done", got)
	}
}
