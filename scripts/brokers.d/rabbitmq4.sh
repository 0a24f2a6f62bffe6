# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# RabbitMQ 4.0, for tests against a second version: make test BROKERS=rabbitmq4
# It sets the same variables as rabbitmq does, so a run can use one of the two.
#
# Natively it lives in a Debian 13 of its own, 500 MB in .cache/debian13, which
# the first start downloads. That takes some minutes, and needs root.
#
#   SPILLWAY_RABBITMQ4_IMAGE  container image; default rabbitmq:4.0

# shellcheck source=scripts/brokers.d/rabbitmq.sh
source "$root/scripts/brokers.d/rabbitmq.sh"

image=${SPILLWAY_RABBITMQ4_IMAGE:-rabbitmq:4.0}
sbin=/usr/lib/rabbitmq/bin
debian=$root/.cache/debian13

# The mounts are private to the command: none is left, whatever happens to it.
# The broker's folder has the same path inside and outside.
# shellcheck disable=SC2016 # the inner shell expands
enter=(unshare --mount --propagation private sh -euc '
	debian=$1 dir=$2
	shift 2
	mkdir -p "$debian$dir"
	mount --bind "$dir" "$debian$dir"
	mount --rbind /dev "$debian/dev"
	mount -t proc proc "$debian/proc"
	cd /
	exec chroot "$debian" "$@"
' sh "$debian" "$dir")

install() {
	[ ! -e "$debian/ready" ] || return 0
	[ "$(id -u)" = 0 ] || die "needs a Docker engine that answers, or root for a Debian 13 of its own"
	command -v debootstrap >/dev/null || debian_install debootstrap ||
		die "needs a Docker engine that answers, or debootstrap"
	say "$broker: downloading a Debian 13 to live in, once"
	rm -rf --one-file-system "$debian"
	mkdir -p "$debian"
	{
		unshare --mount --propagation private \
			debootstrap --variant=minbase trixie "$debian" &&
			cp /etc/hosts "$debian/etc/hosts" &&
			"${enter[@]}" env DEBIAN_FRONTEND=noninteractive \
				apt-get install -qy --no-install-recommends rabbitmq-server &&
			touch "$debian/ready"
	} </dev/null >"$dir/install.log" 2>&1 9>&- || {
		tail -n 20 "$dir/install.log" >&2
		die "cannot make a Debian 13 in $debian"
	}
}
