package main

import (
	"context"
	"log"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

const (
	// slowStart is how long a pod may take to turn ready before it is reported as Running and not ready. Most are
	// faster, and go from Pending to Ready in one write.
	slowStart = 250 * time.Millisecond

	// A container that ends is restarted at once, then after doubling waits, which start anew once it ran for a while.
	// A kubelet does the same with times ten times as long.
	firstBackOff   = time.Second
	longestBackOff = 30 * time.Second
	backOffReset   = time.Minute

	// failedToStart is the exit code that container engines report for a process that could not be started.
	failedToStart = 128
	// lostWithAgent is the exit code of the processes that the kernel killed when the agent died.
	lostWithAgent = 128 + int(syscall.SIGKILL)
)

// podRun is one pod on its node, from start to end. Its methods end and discard may be called from anywhere; all the
// rest belongs to the goroutine in live.
type podRun struct {
	agent *agent
	pod   *corev1.Pod // as it was when the run began
	ip    netip.Addr
	dir   string
	plan  plan

	status   corev1.PodStatus // what is true
	reported corev1.PodStatus // what the API server was told

	ctx    context.Context // ends when there is nothing left to report to: no agent, or no pod object
	forget context.CancelFunc

	mu      sync.Mutex
	grace   time.Duration // the shortest that was asked for, once ending is closed
	ending  chan struct{} // closed when the pod shall end: SIGTERM
	killing chan struct{} // closed when its grace period is over: SIGKILL
	done    chan struct{} // closed when live has returned
}

func newPodRun(ctx context.Context, a *agent, pod *corev1.Pod, ip netip.Addr) (*podRun, error) {
	r := &podRun{
		agent: a, pod: pod, ip: ip,
		dir:      filepath.Join(a.dataDir, "pods", string(pod.UID)),
		reported: pod.Status,
		status:   *pod.Status.DeepCopy(),
		ending:   make(chan struct{}),
		killing:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	var err error
	if r.plan, err = a.plan(ctx, pod, r.dir, ip); err != nil {
		return nil, err
	}
	r.ctx, r.forget = context.WithCancel(ctx)
	nodeIP := a.nodes.named(pod.Spec.NodeName).Status.Addresses[0].Address
	setStarted(&r.status, pod, nodeIP, ip.String(), time.Now())
	return r, nil
}

// end asks the pod to end within the grace period. A later call can only shorten it.
func (r *podRun) end(grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !isClosed(r.ending)
	if !first && grace >= r.grace {
		return
	}
	r.grace = grace
	if first {
		close(r.ending)
	}
	time.AfterFunc(grace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !isClosed(r.killing) {
			close(r.killing)
		}
	})
}

// discard ends the pod at once, because its object is gone, and removes its files.
func (r *podRun) discard() {
	r.forget()
	r.end(0)
	go func() {
		<-r.done
		if err := os.RemoveAll(r.dir); err != nil {
			log.Printf("pod %s: %v", r.pod.Name, err)
		}
	}()
}

// live runs the pod until it is deleted or the agent ends.
func (r *podRun) live() {
	defer close(r.done)
	r.run()
	r.agent.addresses.release(r.ip)
	select {
	case <-r.ending: // a pod that ended by itself stays until somebody deletes it
		r.retry(func() error { return r.agent.deletePod(r.ctx, r.pod) })
	case <-r.ctx.Done():
	}
}

// run starts and restarts the pod until it has ended for good, by itself or because it was asked to.
func (r *podRun) run() {
	if r.plan.command != nil && r.reported.Phase == corev1.PodRunning {
		setRestarting(&r.status, lostWithAgent, time.Now())
		r.report()
	}
	backOff := time.Duration(0)
	for {
		began := time.Now()
		exitCode := r.attempt()
		asked := isClosed(r.ending)
		if asked && r.plan.command == nil {
			return // nothing ran, so nothing ended
		}
		if asked || !restarts(r.pod.Spec.RestartPolicy, exitCode) {
			setEnded(&r.status, exitCode, time.Now())
			r.report()
			return
		}
		setRestarting(&r.status, exitCode, time.Now())
		r.report()
		if time.Since(began) > backOffReset {
			backOff = 0
		}
		if !r.sleep(backOff) {
			setEnded(&r.status, exitCode, time.Now())
			r.report()
			return
		}
		backOff = min(max(2*backOff, firstBackOff), longestBackOff)
	}
}

func restarts(policy corev1.RestartPolicy, exitCode int) bool {
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0
}

// attempt runs the pod once, reports it as running and as ready when it is, and returns its exit code.
func (r *podRun) attempt() int {
	began := time.Now()
	if r.plan.listenAfter > 0 {
		setRunning(&r.status, began, true, time.Now())
		r.report()
		if !r.sleep(r.plan.listenAfter) {
			return 0
		}
	}
	var proc *process.Process
	var exited <-chan struct{}
	if r.plan.command != nil {
		var err error
		if proc, err = r.startProcess(); err != nil {
			log.Printf("pod %s/%s: %v", r.pod.Namespace, r.pod.Name, err)
			return failedToStart
		}
		exited = proc.Done()
	}

	probing, stopProbing := context.WithCancel(r.ctx)
	defer stopProbing()
	var ready <-chan struct{}
	var slow <-chan time.Time
	if r.plan.listenAfter == 0 {
		ready = r.probe(probing)
		slow = time.After(slowStart)
	}
	for {
		select {
		case <-ready:
			ready, slow = nil, nil
			setRunning(&r.status, began, true, time.Now())
			r.report()
		case <-slow:
			slow = nil
			setRunning(&r.status, began, false, time.Now())
			r.report()
		case <-exited:
			return proc.ExitCode()
		case <-r.ending:
			if proc == nil {
				return 0
			}
			r.signal(proc, syscall.SIGTERM)
			select {
			case <-exited:
			case <-r.killing:
				r.signal(proc, syscall.SIGKILL)
			}
			return proc.ExitCode()
		}
	}
}

// startProcess starts the command of the pod, with its output in a file.
func (r *podRun) startProcess() (*process.Process, error) {
	output, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the process has a copy
	command := *r.plan.command
	command.Output = output
	return process.Start(command)
}

func (r *podRun) signal(proc *process.Process, signal syscall.Signal) {
	if err := proc.Signal(signal); err != nil {
		log.Printf("pod %s/%s: %v", r.pod.Namespace, r.pod.Name, err)
	}
}

// prober asks a process on this machine once per connection, as a kubelet does.
var prober = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// probe returns a channel that is closed when the pod is ready, if it ever is.
func (r *podRun) probe(ctx context.Context) <-chan struct{} {
	if r.plan.unready {
		return nil
	}
	ready := make(chan struct{})
	go func() {
		if !sleep(ctx, r.plan.readyAfter) {
			return
		}
		for pause := 2 * time.Millisecond; r.plan.probe != "" && !answers(ctx, r.plan.probe); pause = min(2*pause, 250*time.Millisecond) {
			if !sleep(ctx, pause) {
				return
			}
		}
		close(ready)
	}()
	return ready
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := prober.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// report tells the API server the status, as often as it takes.
func (r *podRun) report() {
	if equality.Semantic.DeepEqual(&r.reported, &r.status) {
		return
	}
	r.retry(func() error { return r.agent.patchStatus(r.ctx, r.pod, &r.reported, &r.status) })
	r.reported = *r.status.DeepCopy()
}

// retry calls until the call succeeds or there is no pod to call about.
func (r *podRun) retry(call func() error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := call()
		if err == nil || apierrors.IsNotFound(err) || r.ctx.Err() != nil {
			return
		}
		log.Printf("pod %s/%s: %v", r.pod.Namespace, r.pod.Name, err)
		if !sleep(r.ctx, pause) {
			return
		}
	}
}

// sleep waits for the duration, or returns false as soon as the pod shall end.
func (r *podRun) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ending:
		return false
	}
}

// sleep waits for the duration, or returns false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
