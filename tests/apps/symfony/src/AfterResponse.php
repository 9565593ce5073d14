<?php
declare(strict_types=1);

namespace Notes;

use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
use Symfony\Component\HttpKernel\KernelEvents;

/** Counts requests after the client has its answer (kernel.terminate). */
final class AfterResponse implements EventSubscriberInterface
{
    public function __construct(private readonly Store $store)
    {
    }

    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::TERMINATE => 'count'];
    }

    public function count(TerminateEvent $event): void
    {
        $this->store->countPath($event->getRequest()->getPathInfo());
    }
}
