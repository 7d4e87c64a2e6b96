# podcount runs from the image, as its Deployment says, under its own account. It writes the number of pods.
. /steps/lib.sh

# deployed PATH prints a part of the pods of the Deployment, as the API server has it.
deployed() { kubectl -n kube-system get deployment podcount -o jsonpath="$1"; }

# mount_account makes the folder that the kubelet would mount: with a token of the account, and the CA.
mount_account() {
	account=/run/account
	mkdir "$account"
	kubectl -n kube-system create token "$(deployed '{.spec.template.spec.serviceAccountName}')" >"$account/token"
	kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' |
		base64 -d >"$account/ca.crt"
	printf kube-system >"$account/namespace"
	chown -R 65532:65532 "$account"
	chmod 600 "$account/token"
}

# start_podcount runs podcount as the kubelet would: with the arguments and the environment of the Deployment.
start_podcount() {
	more="--mount type=bind,src=$account,dst=/var/run/secrets/kubernetes.io/serviceaccount,options=rbind:ro"
	more="$more --env KUBERNETES_SERVICE_HOST=$API_HOST --env KUBERNETES_SERVICE_PORT=$API_PORT"
	for pair in $(deployed '{range .spec.template.spec.containers[0].env[*]}{.name}={.value}{"\n"}{end}'); do
		more="$more --env $pair"
	done
	# shellcheck disable=SC2046
	run_image podcount $(deployed '{range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}') \
		>/tmp/podcount.log 2>&1 &
	podcount=$!
}

# show_process shows under which restrictions the process runs.
show_process() {
	pid=$(ctr -n k8s.io tasks ls | awk '$1 == "podcount" { print $2 }')
	grep -E '^(Uid|Gid|CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status" | tr '\t' ' ' >/tmp/process
	cat /tmp/process
	grep -q '^Uid: 65532 65532 ' /tmp/process || fail 'podcount runs as somebody else'
	[ "$(grep -c '^Cap...: 0000000000000000$' /tmp/process)" = 3 ] || fail 'podcount has capabilities'
	awk '$2 == "/" { print $4 }' "/proc/$pid/mounts" | grep -q '^ro,' || fail 'podcount can write to its root'
}

# is_counted succeeds if each node of the control plane has the number of all pods, and no other node has a number.
is_counted() {
	pods=$(kubectl get pods --all-namespaces --no-headers | wc -l)
	control_plane=node-role.kubernetes.io/control-plane
	all=$(kubectl get nodes -l "$control_plane" -o name)
	right=$(kubectl get nodes -l "$control_plane,hopegi/pod-count=$pods" -o name)
	others=$(kubectl get nodes -l "!$control_plane,hopegi/pod-count" -o name)
	echo "$pods pods; nodes of the control plane: $all; with this number: $right; other nodes: $others"
	[ "$pods" -gt 0 ] && [ -n "$right" ] && [ "$all" = "$right" ] && [ -z "$others" ]
}

# await_count waits until all is counted, and shows it.
await_count() {
	await is_counted
	cat /tmp/attempt
}

# log_has WORDS fails if podcount has not logged them.
log_has() { grep -qF -- "$1" /tmp/podcount.log || fail "podcount has not logged: $1"; }

# as_podcount runs kubectl with the token of podcount, and no other credential.
as_podcount() {
	kubectl --kubeconfig /dev/null --server "$(kubectl config view -o jsonpath='{.clusters[0].cluster.server}')" \
		--certificate-authority "$account/ca.crt" --token "$(cat "$account/token")" "$@"
}

# label KEY tries to set a label of a node, in the name of podcount. This only patches: the account may not get nodes.
label() {
	as_podcount apply --server-side --dry-run=server --validate=false -f - <<-END
		apiVersion: v1
		kind: Node
		metadata: {name: airgap-worker, labels: {$1: "1"}}
	END
}

start_containerd
mount_account
start_podcount
await wget -q -O - http://127.0.0.1:8080/readyz
show_process
await_count

# It also counts what changes.
kubectl run airgap-3 -n default --image example.com/nothing \
	--overrides '{"spec":{"schedulerName":"none","automountServiceAccountToken":false}}'
await_count
kubectl delete pod airgap-3 -n default --grace-period=0 --force
await_count

# podcount did this under its own account, which may do nothing else.
log_has "from=\"the pod's service account\""
as_podcount auth whoami -o jsonpath='{.status.userInfo.username}{"\n"}' | tee /tmp/account
[ "$(cat /tmp/account)" = system:serviceaccount:kube-system:podcount ] || fail 'the account is another one'
kubectl get node airgap-control-plane --show-managed-fields \
	-o jsonpath='{.metadata.managedFields[?(@.manager=="podcount")].fieldsV1}{"\n"}' | tee /tmp/managed
grep -qF '{"f:metadata":{"f:labels":{"f:hopegi/pod-count":{}}}}' /tmp/managed || fail 'podcount manages other fields'
must_fail 'podcount may change only these labels of a node: hopegi/pod-count' label example.com/not-allowed
must_fail 'Forbidden' as_podcount get nodes airgap-worker
must_fail 'Forbidden' as_podcount get secrets -n kube-system

# It stops when the kubelet asks it to.
ctr -n k8s.io tasks kill --signal SIGTERM podcount
wait "$podcount" || fail "podcount ended with the exit code $?"
log_has 'podcount stopped'
