<?php
declare(strict_types=1);

namespace Notes;

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Exception\BadRequestHttpException;
use Symfony\Component\HttpKernel\Exception\NotFoundHttpException;

/** What programs use: JSON, Basic authentication. */
final class Api
{
    public function __construct(private readonly Store $store)
    {
    }

    public function list(Request $request): Response
    {
        return new JsonResponse($this->store->find((string) $request->query->get('q', '')));
    }

    public function add(Request $request): Response
    {
        ['title' => $title, 'text' => $text] = $this->body($request);
        $id = $this->store->add($title, $text);
        return new JsonResponse($this->store->note($id), 201, ['Location' => "/api/notes/$id"]);
    }

    public function change(int $id, Request $request): Response
    {
        $this->store->note($id) ?? throw new NotFoundHttpException("no note $id");
        ['title' => $title, 'text' => $text] = $this->body($request);
        $this->store->change($id, $title, $text);
        return new JsonResponse($this->store->note($id));
    }

    public function remove(int $id): Response
    {
        $this->store->remove($id);
        return new Response('', 204);
    }

    private function body(Request $request): array
    {
        $body = json_decode($request->getContent(), true);
        if (!is_array($body) || !is_string($body['title'] ?? null) || !is_string($body['text'] ?? null)) {
            throw new BadRequestHttpException('a JSON object with title and text, please');
        }
        return $body;
    }
}
