#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <time.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/reboot.h>
#include <sys/mman.h>
#define TASKS 64
#define SAMPLES 512
struct sample { double at, used; int cpu, pad; };
struct shared { volatile double begin; volatile int ready; volatile int count[TASKS]; struct sample s[TASKS][SAMPLES]; };
static struct shared *sh;
static void put(const char*p,const char*s){int f=open(p,O_WRONLY);if(f<0||write(f,s,strlen(s))<0)printf("fail %s %s\n",p,s);if(f>=0)close(f);}
static double get(clockid_t c){struct timespec t;clock_gettime(c,&t);return t.tv_sec+t.tv_nsec/1e9;}
static void work(void){for(volatile int i=0;i<5000;i++);}
static void hog(int i,double secs){
  __atomic_fetch_add(&sh->ready,1,__ATOMIC_SEQ_CST);
  while(sh->begin==0)work();
  double next=sh->begin;int n=0;
  for(;;){
    double now=get(CLOCK_MONOTONIC);
    if(now>=next&&n<SAMPLES){
      struct sample*s=&sh->s[i][n++];
      s->at=now;s->used=get(CLOCK_PROCESS_CPUTIME_ID);s->cpu=sched_getcpu();
      while(next<=now)next+=0.010;
      sh->count[i]=n;
    }
    if(now>sh->begin+secs+0.3)_exit(0);
    work();
  }
}
static double used_at(int i,double t){
  int n=sh->count[i];
  for(int k=1;k<n;k++)if(sh->s[i][k].at>=t){struct sample*a=&sh->s[i][k-1],*b=&sh->s[i][k];
    if(a->at>t)return a->used;
    return a->used+(b->used-a->used)*(t-a->at)/(b->at-a->at);}
  return n?sh->s[i][n-1].used:0;
}
static int cpu_at(int i,double t){
  int n=sh->count[i];
  for(int k=0;k<n;k++)if(sh->s[i][k].at>=t)return sh->s[i][k].cpu;
  return n?sh->s[i][n-1].cpu:-1;
}
int main(void){
  mount("proc","/proc","proc",0,0);mount("sys","/sys","sysfs",0,0);
  setvbuf(stdout,0,_IONBF,0);
  mount("cgroup2","/sys/fs/cgroup","cgroup2",0,0);
  char buf[4096];int f=open("/proc/cmdline",O_RDONLY);int n=read(f,buf,4095);buf[n>0?n:0]=0;close(f);
  char*p=strstr(buf,"wts=");int wa=100,wb=50,na=16,nb=16;double secs=4;char mode[16]="root";
  if(p)sscanf(p,"wts=%d,%d,%d,%d,%lf,%15[a-z]",&wa,&wb,&na,&nb,&secs,mode);
  put("/sys/fs/cgroup/cgroup.subtree_control","+cpu");
  mkdir("/sys/fs/cgroup/a",0755);mkdir("/sys/fs/cgroup/b",0755);
  char s[64];sprintf(s,"%d",wa);put("/sys/fs/cgroup/a/cpu.weight",s);sprintf(s,"%d",wb);put("/sys/fs/cgroup/b/cpu.weight",s);
  sh=mmap(0,sizeof *sh,PROT_READ|PROT_WRITE,MAP_SHARED|MAP_ANONYMOUS,-1,0);
  memset((void*)sh,0,sizeof *sh);
  int cpus=sysconf(_SC_NPROCESSORS_ONLN);
  printf("RUN cpus %d weights %d %d tasks %d %d mode %s\n",cpus,wa,wb,na,nb,mode);
  for(int k=0;k<na+nb;k++){
    int i=k;
    if(!strcmp(mode,"alt"))i=k%2?na+k/2:k/2;
    const char*group=i<na?"/sys/fs/cgroup/a/cgroup.procs":"/sys/fs/cgroup/b/cgroup.procs";
    if(!strcmp(mode,"in")&&(k==0||k==na))put(group,"0");
    if(fork()==0){if(strcmp(mode,"in"))put(group,"0");hog(i,secs);}
  }
  if(!strcmp(mode,"in"))put("/sys/fs/cgroup/cgroup.procs","0");
  while(sh->ready<na+nb)usleep(20000);
  usleep(300000);
  sh->begin=get(CLOCK_MONOTONIC)+0.05;
  while(wait(0)>0);
  double t=sh->begin;
  printf("BEGIN a");for(int i=0;i<na;i++)printf(" %d",cpu_at(i,t));
  printf("\nBEGIN b");for(int i=na;i<na+nb;i++)printf(" %d",cpu_at(i,t));printf("\n");
  for(double x=0;x<=secs+1e-6;x+=0.5){
    int c[2][2]={{0}};double u[2]={0,0};
    for(int i=0;i<na+nb;i++){c[i>=na][cpu_at(i,t+x)>=cpus/2]++;u[i>=na]+=used_at(i,t+x);}
    printf("AT %.1f a %d/%d b %d/%d used %.3f %.3f\n",x,c[0][0],c[0][1],c[1][0],c[1][1],u[0],u[1]);
  }
  /* Tasks that went to the other node. */
  double last=-1;
  for(int k=0;k<400;k++)for(int i=0;i<na+nb;i++){
    double x=k*0.01;int from=cpu_at(i,t+x),to=cpu_at(i,t+x+0.01);
    if(from>=cpus/2!=to>=cpus/2){printf("MOVE %.2f %c%d %d -> %d\n",x,i<na?'a':'b',i,from,to);if(last<0)last=x;}
  }
  /* The first of them ends a balance between the nodes: a start with a known phase. */
  if(last>=0&&last<=0.6){
    t+=last+0.05;
    printf("AFTER %.2f\nAFTER a",last+0.05);for(int i=0;i<na;i++)printf(" %d",cpu_at(i,t));
    printf("\nAFTER b");for(int i=na;i<na+nb;i++)printf(" %d",cpu_at(i,t));
    double u[2][2]={{0}};
    for(int i=0;i<na+nb;i++)for(int e=0;e<2;e++)u[i>=na][e]+=used_at(i,t+0.5+3*e);
    printf("\nAFTER cpus %.3f %.3f\n",(u[0][1]-u[0][0])/3,(u[1][1]-u[1][0])/3);
  }
  sync();reboot(RB_POWER_OFF);reboot(RB_AUTOBOOT);
}
