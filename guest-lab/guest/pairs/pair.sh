# One server beside batch work, recorded as it is and after each change. Before it are: $server (a name of the cases below), $cpus, $seconds, and whether the CPUs run $beside each other.
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
# The first program that wants random numbers gathers them with half a second of CPU time (random_get_entropy_fallback and
# try_to_generate_entropy of drivers/char/random.c): not the one that is recorded.
head -c 1 /dev/random >/dev/null
inside() { chroot /srv "$@"; }

# Whether the server answers: the first answer of node comes after seconds of a virtual clock.
answers() { wget -q -O /dev/null http://127.0.0.1:8080/ 2>/dev/null; }
wrk() { inside wrk -t1 -c"$connections" -d"$1"s http://127.0.0.1:8080/; }

# What postgres and a proxy before it have in common.
postgres_is_made() {
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
    serve_postgres() {
        # What the one that was killed left behind.
        rm -f /srv/data/db/postmaster.pid /srv/tmp/.s.PGSQL*
        as "/$bin/postgres" -D /data/db >/tmp/postgres 2>&1
    }
    bench() { as "/$bin/pgbench" -h /tmp -U nobody "$@" postgres; }
    postgres_answers() { as "/$bin/pg_isready" -q -h /tmp; }
    serve_postgres &
    wait_for 120 postgres_answers || bad "postgres answers: $(tail -n 3 /tmp/postgres)"
    bench -i -s 1 -q >/tmp/bench 2>&1 || bad "pgbench -i: $(tail -n 3 /tmp/bench)"
    as "/$bin/pg_ctl" -D /data/db -m fast stop >/dev/null
}

connections=8
# Seconds of the load before anything is recorded, and what ends such a load (nothing: it ends by itself).
warm_up=0
stop_load() { :; }
case $cpus in
    1) workers=1 ;;
    8) workers=4 ;;
    *) workers=2 ;;
esac
case $server in
    redis)
        serve() { inside redis-server --bind 127.0.0.1 --save '' --appendonly no --io-threads 1 >/dev/null; }
        answers() { inside redis-cli ping | grep -q PONG; }
        load_it() { inside redis-benchmark -q -c $connections -t get -n "$requests"; }
        # Some three seconds, or twenty.
        case $cpus in
            1) requests=8000 ;;
            8) requests=2000 ;;
            *) requests=12000 ;;
        esac
        # Each CPU has its full speed.
        [ "$beside" = yes ] && requests=16000
        requests=$((requests * seconds / 3))
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
        load_it() { wrk $seconds; }
        name=nginx
        ;;
    caddy)
        head -c 20000 /dev/zero | tr '\0' x >/srv/data/index.html
        serve() { GOMAXPROCS=$workers HOME=/tmp inside caddy file-server --listen 127.0.0.1:8080 --root /data >/dev/null 2>&1; }
        load_it() { wrk $seconds; }
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
        load_it() { wrk $seconds; }
        name=node
        ;;
    lighttpd)
        head -c 20000 /dev/zero | tr '\0' x >/srv/data/index.html
        cat >/srv/data/conf <<END
server.document-root = "/data"
server.bind = "127.0.0.1"
server.port = 8080
server.max-keep-alive-requests = 60000
index-file.names = ("index.html")
END
        serve() { inside lighttpd -D -f /data/conf >/tmp/lighttpd 2>&1; }
        load_it() { wrk $seconds; }
        name=lighttpd
        ;;
    php)
        echo '<?php echo str_repeat(json_encode(range(1, 60)), 10);' >/srv/data/server.php
        serve() { inside php8.4 -n -S 127.0.0.1:8080 /data/server.php >/tmp/php 2>&1; }
        load_it() { wrk $seconds; }
        name=php8.4
        ;;
    ruby)
        cat >/srv/data/server.rb <<'END'
require 'socket'
require 'json'
server = TCPServer.new('127.0.0.1', 8080)
loop do
  Thread.new(server.accept) do |connection|
    Thread.current.name = 'answer'
    while (line = connection.gets)
      line = connection.gets until line.nil? || line == "\r\n"
      text = JSON.generate((0...60).map { |i| i * 7 % 13 })
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: #{text.bytesize}\r\n\r\n#{text}")
    end
  end
end
END
        serve() { inside ruby --disable-gems /data/server.rb >/tmp/ruby 2>&1; }
        load_it() { wrk $seconds; }
        name=answer
        process=ruby
        ;;
    gunicorn)
        cat >/srv/data/app.py <<END
import json
def app(environ, start):
    text = json.dumps([i * 7 % 13 for i in range(60)]).encode()
    start('200 OK', [('Content-Length', str(len(text)))])
    return [text]
END
        serve() {
            PYTHONDONTWRITEBYTECODE=1 inside gunicorn -b 127.0.0.1:8080 -w $((workers * 2)) --chdir /data app:app >/tmp/gunicorn 2>&1
        }
        load_it() { wrk $seconds; }
        name=gunicorn
        ;;
    nsd)
        cat >/srv/data/nsd.conf <<END
server:
    ip-address: 127.0.0.1@8053
    server-count: $((workers * 2))
    username: ""
    chroot: ""
    zonesdir: "/data"
    zonelistfile: "/tmp/zone.list"
    xfrdfile: "/tmp/xfrd.state"
    pidfile: ""
remote-control:
    control-enable: no
zone:
    name: example.org
    zonefile: example.org
END
        printf '$ORIGIN example.org.\n$TTL 3600\n@ SOA h1 h1 1 3600 900 86400 3600\n@ NS h1\n' >/srv/data/example.org
        for of in $(seq 200); do
            echo "h$of A 10.0.0.$of" >>/srv/data/example.org
            echo "h$of.example.org A" >>/srv/data/queries
        done
        serve() { inside nsd -d -c /data/nsd.conf >/tmp/nsd 2>&1; }
        answers() { grep -q ':1F75 ' /proc/net/udp; }
        load_it() { inside dnsperf -s 127.0.0.1 -p 8053 -d /data/queries -c 4 -q $connections -l $seconds; }
        name=nsd
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
        load_it() { wrk $seconds; }
        name=python3
        ;;
    postgres)
        postgres_is_made
        serve() { serve_postgres; }
        answers() { postgres_answers; }
        load_it() { bench -n -S -c 4 -T $seconds; }
        name=postgres
        ;;
    pgbouncer)
        # A session of PostgreSQL for each of the client's.
        postgres_is_made
        cat >/srv/data/pgbouncer.ini <<END
[databases]
postgres = host=/tmp dbname=postgres user=nobody
[pgbouncer]
listen_port = 6432
unix_socket_dir = /tmp
auth_type = any
pool_mode = session
END
        serve() {
            serve_postgres &
            as /usr/sbin/pgbouncer /data/pgbouncer.ini >/tmp/pgbouncer 2>&1
        }
        answers() { postgres_answers && as "/$bin/pg_isready" -q -h /tmp -p 6432; }
        load_it() { bench -p 6432 -n -S -c 4 -T $seconds; }
        name=pgbouncer
        beside=postgres
        ;;
    memcached)
        # memcaslap sets its keys for some seconds before it counts.
        serve() { inside memcached -u root -l 127.0.0.1 -p 8081 -t $workers -m 64 >/dev/null 2>&1; }
        answers() { printf 'version\r\nquit\r\n' | nc 127.0.0.1 8081 2>/dev/null | grep -q VERSION; }
        warm_up=8
        load_it() { inside memcaslap -s 127.0.0.1:8081 -T 1 -c $connections -w 200k -t $((seconds + 10))s; }
        name=mc-worker
        process=memcached
        ;;
    apache)
        head -c 20000 /dev/zero | tr '\0' x >/srv/data/index.html
        modules=/usr/lib/apache2/modules
        cat >/srv/data/conf <<END
ServerRoot /tmp
ServerName pair
DefaultRuntimeDir /tmp
PidFile /tmp/pid
Listen 127.0.0.1:8080
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule dir_module $modules/mod_dir.so
DocumentRoot /data
ErrorLog /dev/null
User nobody
Group nogroup
StartServers 1
ServerLimit 1
ThreadsPerChild 8
MaxRequestWorkers 8
MinSpareThreads 1
MaxSpareThreads 8
MaxKeepAliveRequests 0
END
        serve() { inside apache2 -f /data/conf -D FOREGROUND >/tmp/apache 2>&1; }
        load_it() { wrk $seconds; }
        name=apache2
        ;;
    java)
        # Carriers of virtual threads have this name. What they run is compiled while the warm-up lasts.
        cat >/srv/data/Server.java <<END
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
class Server {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 64);
        server.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        server.createContext("/", exchange -> {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 50; i++) text.append("{\"i\":").append(i).append(",\"url\":\"").append(exchange.getRequestURI()).append("\"}");
            byte[] body = text.toString().getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
END
        java() { HOME=/tmp inside /usr/lib/jvm/java-21-openjdk-amd64/bin/"$@"; }
        java javac -d /data /data/Server.java >/tmp/javac 2>&1 || bad "javac: $(tail -n 3 /tmp/javac)"
        # One compiler of the two: the other one would take a quarter of the CPU for minutes of a virtual clock.
        serve() { java java -XX:TieredStopAtLevel=1 -Xmx256m -Dsun.net.httpserver.nodelay=true -cp /data Server >/tmp/java 2>&1; }
        warm_up=8
        load_it() { wrk 300; }
        # wrk prints what it has counted.
        stop_load() { task kill wrk 2 >/dev/null; }
        name=ForkJoinPool-1-
        process=java
        ;;
    haproxy)
        # A proxy before nginx: one request takes both.
        head -c 2000 /dev/zero | tr '\0' x >/srv/data/index.html
        cat >/srv/data/nginx.conf <<END
daemon off; worker_processes $workers; pid /tmp/pid; error_log /dev/null; user root;
events { worker_connections 64; }
http { access_log off; keepalive_requests 1000000; server { listen 127.0.0.1:8081; root /data; } }
END
        cat >/srv/data/haproxy.conf <<END
global
    maxconn 64
    nbthread 1
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:8080
    default_backend back
backend back
    server one 127.0.0.1:8081
END
        serve() {
            inside nginx -c /data/nginx.conf >/dev/null 2>&1 &
            inside haproxy -db -f /data/haproxy.conf >/tmp/haproxy 2>&1
        }
        load_it() { wrk $seconds; }
        name=haproxy
        beside=nginx
        ;;
    mariadb)
        # sysbench's transactions read by primary keys; each connection has a thread of the server.
        mkdir -p /srv/data/db
        options='--no-defaults --datadir=/data/db --lc-messages-dir=/usr/share/mysql --socket=/tmp/db.sock --skip-networking --user=root
            --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-flush-log-at-trx-commit=0 --skip-grant-tables'
        printf 'create database mysql;\ncreate database sbtest;\n' >/tmp/sql
        inside mariadbd $options --bootstrap </tmp/sql >/tmp/mariadb 2>&1 || bad "mariadbd --bootstrap: $(tail -n 3 /tmp/mariadb)"
        serve() { inside mariadbd $options >/tmp/mariadb 2>&1; }
        answers() { echo 'select 1' | inside mariadb --no-defaults --socket=/tmp/db.sock >/dev/null; }
        bench() { inside sysbench oltp_point_select --db-driver=mysql --mysql-socket=/tmp/db.sock --mysql-user=root --tables=1 --table-size=2000 "$@"; }
        load_it() { bench --threads=4 --time=$seconds --db-ps-mode=disable run; }
        name=one_connection
        process=mariadbd
        serve &
        wait_for 120 answers || bad "mariadbd answers: $(tail -n 3 /tmp/mariadb)"
        bench prepare >/tmp/bench 2>&1 || bad "sysbench prepare: $(tail -n 3 /tmp/bench)"
        kill -9 $(pidof mariadbd)
        ;;
    unbound)
        # What it is asked for it knows: no question leaves the machine.
        cat >/srv/data/unbound.conf <<END
server:
    interface: 127.0.0.1@8053
    num-threads: $workers
    username: ""
    chroot: ""
    directory: "/tmp"
    pidfile: ""
    use-syslog: no
    do-daemonize: no
    local-zone: "example.org." static
END
        for of in $(seq 200); do
            echo "    local-data: \"h$of.example.org. A 10.0.0.$of\"" >>/srv/data/unbound.conf
            echo "h$of.example.org A" >>/srv/data/queries
        done
        serve() { inside unbound -c /data/unbound.conf >/tmp/unbound 2>&1; }
        answers() { grep -q ':1F75 ' /proc/net/udp; }
        load_it() { inside dnsperf -s 127.0.0.1 -p 8053 -d /data/queries -c 4 -q $connections -l $seconds; }
        name=unbound
        ;;
    build)
        # make starts compilers, four at a time, until the time is over: more files than it gets to.
        [ -e /srv/bin/sh ] || cp /bin/busybox /srv/bin/sh
        for file in $(seq 200); do
            for function in 1; do
                echo "int f$function(int *a, int n) { int s = $file; for (int i = 0; i < n; i++) { s += a[i] * $function; if (s > 9) a[i] ^= s >> 3; } return s; }"
            done >/srv/data/$file.c
        done
        printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\t@gcc -O0 -c $< -o $@\n' >/srv/data/Makefile
        serve() { :; }
        answers() { :; }
        load_it() {
            rm -f /srv/data/*.o
            sh -c '[ -d /sys/fs/cgroup/served ] && echo $$ >/sys/fs/cgroup/served/cgroup.procs
                exec chroot /srv make -s -j4 -C /data' &
            sleep $seconds
            for of in make gcc cc1 as; do task kill $of 9 >/dev/null; done
            wait $! 2>/dev/null
            echo "$(ls /srv/data/*.o | wc -l) files"
        }
        name=cc1
        ;;
    audio)
        # A task that wakes every 5 ms for 1 ms of work under SCHED_FIFO, and one of 20 ms that is an ordinary thread.
        serve() {
            load periodic mixer 0 - other 900 4000 20000 &
            load periodic audio 0 - fifo:10 900 1000 5000
        }
        answers() { pidof load >/dev/null; }
        load_it() { sleep $seconds; }
        name=audio
        ;;
    *) bad "no server $server" ;;
esac

hogs=$cpus
# processes NAME: those whose name it is.
processes() { for of in /proc/[0-9]*; do [ "$(cat $of/comm 2>/dev/null)" = "$1" ] && echo "${of#/proc/}"; done; }
set_all() { task "$@" 2>/tmp/why | grep -q ": [1-9]" && ! [ -s /tmp/why ] || bad "$setting: task $* $(cat /tmp/why)"; }
# Whether all batch tasks run under their name: what is changed is looked for by it.
batch_is_there() { [ "$(processes batch | wc -l)" = "$hogs" ]; }
group() { for of in $(processes "$1"); do echo "$of" >"/sys/fs/cgroup/$2/cgroup.procs"; done; }

change() {
    case $1 in
        # Without batch work.
        alone) ;;
        idle) set_all policy batch idle ;;
        batch) set_all policy batch batch ;;
        nice) set_all nice batch 10 ;;
        fifo) set_all policy $name fifo:1 ;;
        srvnice) set_all nice $name -10 ;;
        aff) set_all cpus batch 1 ;;
        pinned | alone-pinned) set_all cpus ${process:-$name} 1 ;;
        slice) set_all slice batch 10000000 ;;
        groups | weight | max)
            mkdir -p /sys/fs/cgroup/served /sys/fs/cgroup/batch
            echo 100 >/sys/fs/cgroup/batch/cpu.weight
            echo max >/sys/fs/cgroup/batch/cpu.max
            for of in ${process:-$name} $beside; do group $of served; done
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
    setting=$1 lost=
    case $setting in
        alone*) ;;
        *) for i in $(seq $hogs); do load hog batch 0 - other 900 & done ;;
    esac
    serve &
    wait_for 60 answers || bad "$setting: $server answers: $(tail -n 2 /tmp/$server 2>/dev/null)"
    case $setting in
        alone*) ;;
        *) wait_for 60 batch_is_there || bad "$setting: the batch begins" ;;
    esac
    change "$setting"
    rm -f /tmp/over
    if [ $warm_up != 0 ]; then
        { load_it >"$setting.client" 2>&1 || touch /tmp/lost; touch /tmp/over; } &
        load=$!
        sleep $warm_up
    fi
    # What the last one said would count as this one's.
    rm -f /tmp/record
    schedlab record -o "$setting.slt" --for 60s --all --messages on --no-calibration >/tmp/record 2>&1 &
    recorder=$!
    wait_for 60 grep -q '^recording by' /tmp/record || bad "$setting: the recorder begins"
    # Its rings hold what a load of three seconds does. What it would make of that meanwhile takes an emulated CPU longer than a real
    # one, a third of its time. In a long recording it works, and its work is a part of what is recorded.
    [ "$seconds" -gt 3 ] || kill -STOP $recorder
    # A load that is longer than what is recorded of it ends later: what its program does then is no part of it.
    if [ $warm_up = 0 ]; then
        load_it >"$setting.client" 2>&1 || lost=1
    else
        sleep $seconds
        [ -e /tmp/over ] && bad "$setting: the load was over before its recording"
    fi
    # The signal that ends it is the first thing that it sees.
    kill -INT $recorder
    kill -CONT $recorder
    wait $recorder
    if [ $warm_up != 0 ]; then
        stop_load
        wait $load
        rm /tmp/lost 2>/dev/null && lost=1
    fi
    [ -z "$lost" ] || bad "$setting: the load: $(tail -n 2 "$setting.client")"
    check "$setting: recorded" grep -q 'no event was lost' /tmp/record
    for of in batch ${process:-$name} $beside mixer; do kill -9 $(processes $of) 2>/dev/null; done
    sleep 0.5
    rmdir /sys/fs/cgroup/served /sys/fs/cgroup/batch 2>/dev/null
    tr '\r' '\n' <"$setting.client" | tail -n 2
}

for of in $settings; do setting "$of"; done
