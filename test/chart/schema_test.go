package chart

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRefusals: values that cannot work are refused before anything is installed, by a message that names them.
func TestRefusals(t *testing.T) {
	for _, refused := range []struct{ set, says string }{
		// Keys that are not there.
		{"replicas=3", "replicas"},
		{"router.replicas=3", "replicas"},
		{"router.config.proxy-timeot=3s", "proxy-timeot"},
		{"controller.config.no-such-flag=1", "no-such-flag"},
		{"warmPool.size=3", "size"},
		{"security.runAsRoot=true", "runAsRoot"},
		{"networkPolicy.egress.dns.server=x", "server"},
		{"metrics.serviceMonitor.enable=true", "enable"},
		{"sandboxTemplates[0].name=a,sandboxTemplates[0].imagee=x", "imagee"},
		// Types.
		{"router.replicaCount=two", "replicaCount"},
		{"router.replicaCount=-1", "replicaCount"},
		{"warmPool.replicas=1.5", "replicas"},
		{"router.allowUnauthenticated=perhaps", "allowUnauthenticated"},
		{"router.service.port=99999", "port"},
		{"router.extraArgs=--x", "extraArgs"},
		{"router.resources=1Gi", "resources"},
		{"router.podLabels.a[0]=b", "podLabels"},
		// One of a few.
		{"router.service.type=ExternalName", "type"},
		{"router.auth.mode=password", "mode"},
		{"router.tls.clientAuth=maybe", "clientAuth"},
		{"warmPool.updateStrategy=Rolling", "updateStrategy"},
		{"networkPolicy.egress.dns.mode=off", "mode"},
		{"router.config.discovery=dns", "discovery"},
		// What does not fit together; the chart says it in a sentence.
		{"router.terminationGracePeriodSeconds=20", "router.drain takes up to 38: the kubelet would kill the router"},
		{"router.ports.http=0", "the router would serve nothing"},
		{"router.tls.enabled=true", "router.tls.enabled needs a certificate"},
		{"router.tls.enabled=true,router.tls.certManager.enabled=true", "router.tls.certManager needs issuerRef"},
		{"router.tls.clientAuth=required", "router.tls.clientAuth needs router.tls.enabled"},
		{"router.httpRoute.enabled=true", "router.httpRoute needs parentRefs"},
		{"router.autoscaling.enabled=true,router.autoscaling.maxReplicas=1", "router.autoscaling.minReplicas is 2, more than maxReplicas, 1"},
		{"router.autoscaling.enabled=true,router.autoscaling.targetCPUUtilizationPercentage=0", "router.autoscaling needs something to look at"},
		{"router.extraArgs[0]=--http-bind-address=:1", "--http-bind-address is set by another value"},
		{"router.extraArgs[0]=--authz-mode=allow-all", "--authz-mode is set by another value"},
		{"controller.replicaCount=2,controller.leaderElect=false", "the replicas would work against each other"},
		{"sandboxTemplate.enabled=false", "The warm pool python-bash-warmpool has no template"},
		{"warmPools[0].name=python-bash-warmpool", "the name python-bash-warmpool is there twice"},
		{"security.runAsUser=0", "runAsUser"},
	} {
		t.Run(refused.set, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, "rel", "ns", "--set", refused.set)
			assert.ErrorContains(t, err, refused.says)
		})
	}
}
