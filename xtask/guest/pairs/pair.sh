# One server beside batch work, recorded as it is and after each change. Before it stand: $server (a name of the cases below) and $cpus.
# The server's packages are in /srv, which is its root. Files: SETTING.slt, and what the client counted in SETTING.client.

# The root of the servers.
for name in proc dev sys; do
    mkdir -p /srv/$name
    mount --bind /$name /srv/$name
done
mkdir -p /srv/tmp /srv/run /srv/data
chmod 1777 /srv/tmp
printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >/srv/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >/srv/etc/group
ip link set lo up
inside() { chroot /srv "$@"; }

# Whether the server answers: the first answer of node comes after seconds of a virtual clock.
answers() { wget -q -O /dev/null http://127.0.0.1:8080/ 2>/dev/null; }
wrk() { inside wrk -t1 -c"$connections" -d"$1"s http://127.0.0.1:8080/; }

connections=8
workers=$([ "$cpus" = 1 ] && echo 1 || echo 2)
case $server in
    redis)
        serve() { inside redis-server --bind 127.0.0.1 --save '' --appendonly no --io-threads 1 >/dev/null; }
        answers() { inside redis-cli ping | grep -q PONG; }
        load_it() { inside redis-benchmark -q -c $connections -t get -n "$requests"; }
        # Some three seconds.
        requests=$([ "$cpus" = 1 ] && echo 8000 || echo 12000)
        name=redis-server
        ;;
    nginx)
        head -c 20000 /dev/zero | tr '\0' x >/srv/data/index.html
        cat >/srv/data/conf <<END
daemon off; worker_processes $workers; pid /tmp/pid; error_log /dev/null; user root;
events { worker_connections 64; }
http { access_log off; server { listen 127.0.0.1:8080; root /data; } }
END
        serve() { inside nginx -c /data/conf >/dev/null; }
        load_it() { wrk 3; }
        name=nginx
        ;;
    caddy)
        head -c 20000 /dev/zero | tr '\0' x >/srv/data/index.html
        serve() { GOMAXPROCS=$workers HOME=/tmp inside caddy file-server --listen 127.0.0.1:8080 --root /data >/dev/null 2>&1; }
        load_it() { wrk 3; }
        name=caddy
        ;;
    node)
        cat >/srv/data/server.js <<END
require('http').createServer((request, response) => {
    let text = '';
    for (let i = 0; i < 50; i++) text += JSON.stringify({ i, url: request.url });
    response.end(text);
}).listen(8080, '127.0.0.1');
END
        serve() { inside node /data/server.js >/dev/null; }
        load_it() { wrk 3; }
        name=node
        ;;
    python)
        cat >/srv/data/server.py <<END
import socketserver, json
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line: return
            while line not in (b'\r\n', b''): line = self.rfile.readline()
            text = json.dumps([i * 7 % 13 for i in range(60)]).encode()
            self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(text) + text)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 64
Server(('127.0.0.1', 8080), Answer).serve_forever()
END
        serve() { PYTHONDONTWRITEBYTECODE=1 inside python3 /data/server.py >/dev/null; }
        load_it() { wrk 3; }
        name=python3
        ;;
    postgres)
        # PostgreSQL refuses to be root's; initdb starts programs by a shell.
        cp "$(which task)" /srv/tmp/task
        [ -e /srv/bin/sh ] || cp /bin/busybox /srv/bin/sh
        as() { inside /tmp/task with user=65534 "$@"; }
        bin=$(cd /srv && echo usr/lib/postgresql/*/bin)
        mkdir -p /srv/data/db
        chown -R 65534:65534 /srv/data
        as "/$bin/initdb" -D /data/db -A trust --locale=C --encoding=UTF8 --no-sync >/tmp/initdb 2>&1 || bad "initdb: $(tail -n 3 /tmp/initdb)"
        cat >>/srv/data/db/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '/tmp'
dynamic_shared_memory_type = mmap
fsync = off
autovacuum = off
END
        serve() {
            # What the one that was killed left behind.
            rm -f /srv/data/db/postmaster.pid /srv/tmp/.s.PGSQL*
            as "/$bin/postgres" -D /data/db >/tmp/postgres 2>&1
        }
        answers() { as "/$bin/pg_isready" -q -h /tmp; }
        bench() { as "/$bin/pgbench" -h /tmp -U nobody "$@" postgres; }
        load_it() { bench -n -S -c 4 -T 3; }
        name=postgres
        serve &
        wait_for 120 answers || bad "postgres answers: $(tail -n 3 /tmp/postgres)"
        bench -i -s 1 -q >/tmp/bench 2>&1 || bad "pgbench -i: $(tail -n 3 /tmp/bench)"
        as "/$bin/pg_ctl" -D /data/db -m fast stop >/dev/null
        ;;
    audio)
        # A task that wakes every 5 ms for 1 ms of work under SCHED_FIFO, and one of 20 ms that is an ordinary thread.
        serve() {
            load periodic mixer 0 - other 900 4000 20000 &
            load periodic audio 0 - fifo:10 900 1000 5000
        }
        answers() { pidof load >/dev/null; }
        load_it() { sleep 3; }
        name=audio
        ;;
    *) bad "no server $server" ;;
esac

hogs=$([ "$cpus" = 1 ] && echo 1 || echo 4)
# processes NAME: those whose name it is.
processes() { for of in /proc/[0-9]*; do [ "$(cat $of/comm 2>/dev/null)" = "$1" ] && echo "${of#/proc/}"; done; }
set_all() { task "$@" 2>/tmp/why | grep -q ": [1-9]" && ! [ -s /tmp/why ] || bad "$setting: task $* $(cat /tmp/why)"; }
group() { for of in $(processes "$1"); do echo "$of" >"/sys/fs/cgroup/$2/cgroup.procs"; done; }

change() {
    case $1 in
        idle) set_all policy batch idle ;;
        batch) set_all policy batch batch ;;
        nice) set_all nice batch 10 ;;
        fifo) set_all policy $name fifo:1 ;;
        srvnice) set_all nice $name -10 ;;
        aff) set_all cpus batch 1 ;;
        groups | weight | max)
            mkdir -p /sys/fs/cgroup/served /sys/fs/cgroup/batch
            echo 100 >/sys/fs/cgroup/batch/cpu.weight
            echo max >/sys/fs/cgroup/batch/cpu.max
            group $name served
            group batch batch
            [ "$1" = weight ] && echo 25 >/sys/fs/cgroup/batch/cpu.weight
            [ "$1" = max ] && echo 20000 100000 >/sys/fs/cgroup/batch/cpu.max
            ;;
    esac
    return 0
}

# setting NAME: everything begins anew, is changed, and is recorded for as long as the client asks. What the client counts is what the
# recording holds: it begins when the recorder has begun, and when it ends the recorder ends.
setting() {
    setting=$1
    for i in $(seq $hogs); do load hog batch 0 - other 900 & done
    serve &
    wait_for 60 answers || bad "$setting: $server answers"
    change "$setting"
    # What the last one said would be taken for this one's.
    rm -f /tmp/record
    schedlab record -o "$setting.slt" --for 60s --all --no-calibration >/tmp/record 2>&1 &
    recorder=$!
    wait_for 60 grep -q '^recording by' /tmp/record || bad "$setting: the recorder begins"
    load_it >"$setting.client" 2>&1
    kill -INT $recorder
    wait $recorder
    check "$setting: recorded" grep -q 'no event was lost' /tmp/record
    for of in batch $name mixer; do kill -9 $(processes $of) 2>/dev/null; done
    sleep 0.5
    rmdir /sys/fs/cgroup/served /sys/fs/cgroup/batch 2>/dev/null
    tr '\r' '\n' <"$setting.client" | tail -n 2
}

for of in $settings; do setting "$of"; done
