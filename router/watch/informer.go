package watch

import (
	"context"
	"time"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// silence is how long a list or watch may say nothing before it is ended and made anew. The API server sends a
// bookmark about every minute; a watch that is resumed costs it nothing.
const silence = 90 * time.Second

// backoff is the pause between attempts to reach the API server. Its end keeps recovery well below half a minute.
var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}

// kind is a kind of objects that routes are read from.
//
// The router needs these rights, in all namespaces or in the one it watches: list and watch on endpointslices
// (group discovery.k8s.io), or with --discovery=pods on pods; and get on nodes, in all the cluster, only when
// NODE_NAME is set and neither --zone nor ZONE is. Whoever may write EndpointSlices decides where requests go, so
// nobody but the controllers should.
type kind struct {
	gv       schema.GroupVersion
	resource string
	example  runtime.Object
	read     func(o any, loopback bool) (p *part, invalid int)
}

var kinds = map[string]kind{
	EndpointSlices: {
		discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{},
		func(o any, loopback bool) (*part, int) { return fromSlice(o.(*discoveryv1.EndpointSlice), loopback) },
	},
	Pods: {
		corev1.SchemeGroupVersion, "pods", &corev1.Pod{},
		func(o any, loopback bool) (*part, int) { return fromPod(o.(*corev1.Pod), loopback) },
	},
}

// informer follows one kind of objects. It is the store of a reflector: each object becomes a part as soon as it is
// decoded, so neither the objects nor a second copy of the parts are kept.
type informer struct {
	kind
	options Options
	client  rest.Interface
	stats   *Stats
	apply   *applier

	end      func()      // ends the call to the API server that runs now
	patience *time.Timer // calls end
}

// fromCluster checks the options and returns what runs the informer.
func fromCluster(o Options, stats *Stats) (func(context.Context, Table) error, error) {
	cfg, err := RESTConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	in := &informer{kind: kinds[o.Discovery], options: o, stats: stats}
	if in.client, err = client(cfg, in.gv); err != nil {
		return nil, err
	}
	nodes, err := client(cfg, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	stats.lastWord.Store(time.Now().UnixNano())
	return func(ctx context.Context, t Table) error {
		t.SetZone(zone(ctx, o, nodes))
		in.run(ctx, t)
		return nil
	}, nil
}

func (in *informer) run(ctx context.Context, t Table) {
	in.apply = newApplier(t, in.stats)
	ctx = klog.NewContext(ctx, funcr.New(func(_, line string) {
		in.options.Log.Warn().Str("detail", line).Msg("watching " + in.resource)
	}, funcr.Options{}))
	pause := backoff
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  in.list,
		WatchFuncWithContext: in.watch,
	}, in.example, in, cache.ReflectorOptions{Name: in.resource, Backoff: &pause}).RunWithContext(ctx)
}

func (in *informer) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = proto.LabelSandboxNameHash
	return in.client.Get().Namespace(in.options.Namespace).Resource(in.resource).
		VersionedParams(&o, metav1.ParameterCodec)
}

func (in *informer) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in.begin(cancel)
	return in.request(o).Do(ctx).Get()
}

func (in *informer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	ctx, cancel := context.WithCancel(ctx)
	in.begin(cancel)
	w, err := in.request(o).Watch(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := stream{w, cancel}
	in.limit(s.Stop)
	return s, nil
}

// stream is a watch that gives back its context when it is stopped.
type stream struct {
	watch.Interface
	cancel context.CancelFunc
}

func (s stream) Stop() {
	s.Interface.Stop()
	s.cancel()
}

// begin is told of a new call to the API server and ends the one before. The reflector makes one at a time, but leaves
// a streaming list open when what it listed is refused.
func (in *informer) begin(end func()) {
	if in.end != nil {
		in.end()
	}
	in.limit(end)
}

// limit has the call that runs now ended when the API server says nothing for too long.
func (in *informer) limit(end func()) {
	if in.patience != nil {
		in.patience.Stop()
	}
	in.end, in.patience = end, time.AfterFunc(silence, end)
}

// heard notes that the API server said something.
func (in *informer) heard() {
	in.stats.lastWord.Store(time.Now().UnixNano())
	in.patience.Reset(silence)
}

// Transformer makes the reflector keep parts, and not objects, while a streamed list comes in.
func (in *informer) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return in.part(o), nil }
}

func (in *informer) part(o any) *part {
	if p, done := o.(*part); done {
		return p
	}
	in.heard()
	p, invalid := in.read(o, in.options.AllowLoopback)
	if invalid > 0 {
		in.stats.invalid.Add(uint64(invalid))
		in.options.Log.Warn().Str("namespace", p.object.namespace).Str("name", p.object.name).Int("addresses", invalid).
			Msg("addresses that no pod can have are not used")
	}
	return p
}

// Add, Update, Delete, Replace, Bookmark and Resync are what a reflector needs of a store.

func (in *informer) Add(o any) error    { in.apply.set(in.part(o)); return nil }
func (in *informer) Update(o any) error { in.apply.set(in.part(o)); return nil }
func (in *informer) Delete(o any) error { in.apply.drop(in.part(o)); return nil }
func (in *informer) Resync() error      { return nil }

func (in *informer) Bookmark(string) error {
	in.heard()
	return nil
}

func (in *informer) Replace(objects []any, resourceVersion string) error {
	in.heard()
	parts := make([]*part, len(objects))
	for i, o := range objects {
		parts[i] = in.part(o)
	}
	err := in.apply.replace(parts, resourceVersion)
	if err == nil {
		in.options.Log.Info().Int("objects", len(parts)).Msg("listed " + in.resource)
	}
	return err
}
